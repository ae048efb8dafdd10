"""El modelo preparado para generar dice lo mismo que el modelo."""

from typing import Any

import pytest
import torch

from enlace.model.decoder import Decoder
from enlace.model.generation import generate, stream_ids
from enlace.model.sampling import Sampling
from enlace.model.transformer import Transformer

from .models import model_config, random_ids

SHAPES: tuple[dict[str, Any], ...] = ({}, {"qk_norm": False}, {"tie_embeddings": False})


def _model(document_mask: Any = "none", **changes: Any) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(model_config(**changes), "flash", document_mask=document_mask)
    with torch.no_grad():  # logits lejos del empate, y normas que no valen uno
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("mask", ["none", "block"])
@pytest.mark.parametrize("changes", SHAPES)
def test_los_logits_son_los_del_modelo_token_a_token_y_por_trozos(
    changes: dict[str, Any], mask: str
) -> None:
    model = _model(mask, **changes)
    ids = random_ids(3, 20)
    ids[0, 6] = ids[1, 11] = ids[1, 14] = 0  # separadores
    with torch.inference_mode():
        whole = model(ids)[0]
    decoder = Decoder(model)
    for cuts in ((5, 6, 7, 13, 14, 20), (20,), (1, 20)):
        cache, start = decoder.new_cache(3, 20), 0
        for end in cuts:
            logits = decoder.next_logits(ids[:, start:end], cache)
            torch.testing.assert_close(logits, whole[:, end - 1], rtol=0, atol=2e-5)
            start = end


def test_genera_los_mismos_ids_que_el_modelo_y_no_lo_toca() -> None:
    model, ids = _model(), random_ids(3, 5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    decoder = Decoder(model)
    for sampling in (Sampling(0.0), Sampling(0.8, 20, 0.9, 0.05, 1.2)):
        draws = [
            generate(each, ids, 20, sampling, generator=torch.Generator().manual_seed(4))
            for each in (model, decoder)
        ]
        assert torch.equal(*draws)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_volver_atras_en_la_cache_da_lo_mismo_que_empezar() -> None:
    decoder = Decoder(_model())
    first, second = random_ids(1, 12, seed=1), random_ids(1, 12, seed=2)
    second[:, :7] = first[:, :7]
    cache = decoder.new_cache(1, 32)
    list(stream_ids(decoder, first, 5, Sampling(0.0), cache=cache))
    cache.rewind(7)
    again = list(stream_ids(decoder, second, 5, Sampling(0.0), cache=cache))
    fresh = list(stream_ids(decoder, second, 5, Sampling(0.0)))
    assert torch.equal(torch.stack(again), torch.stack(fresh))


def test_en_16_bits_se_parece_al_modelo_con_autocast() -> None:
    model, ids = _model(), random_ids(2, 16)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(ids)[0][:, -1]
    with torch.inference_mode():
        exact = model(ids)[0][:, -1]
    decoder = Decoder(model, torch.bfloat16)
    for cuts in ((16,), (13, 14, 15, 16)):
        cache, start = decoder.new_cache(2, 16), 0
        for end in cuts:
            found, start = decoder.next_logits(ids[:, start:end], cache), end
        assert found.dtype == torch.float32
        assert (found - exact).norm() < 2 * (expected - exact).norm()


def test_dos_generaciones_que_se_turnan_no_se_mezclan() -> None:
    decoder = Decoder(_model())
    prompts = random_ids(1, 6, seed=1), random_ids(1, 6, seed=2), random_ids(3, 4, seed=3)
    alone = [list(stream_ids(decoder, ids, 8, Sampling(0.0))) for ids in prompts]
    turns = zip(*(stream_ids(decoder, ids, 8, Sampling(0.0)) for ids in prompts), strict=True)
    for number, each in enumerate(turns):
        for found, expected in zip(each, alone, strict=True):
            assert torch.equal(found, expected[number])


def test_los_logits_de_un_paso_no_cambian_con_el_siguiente() -> None:
    decoder, ids = Decoder(_model()), random_ids(1, 6)
    cache = decoder.new_cache(1, 6)
    steps = [decoder.next_logits(ids[:, [index]], cache) for index in range(6)]
    kept = [logits.clone() for logits in steps]
    decoder.next_logits(ids[:, :1], decoder.new_cache(1, 1))
    assert all(torch.equal(*pair) for pair in zip(steps, kept, strict=True))


def test_no_se_entrena() -> None:
    with pytest.raises(ValueError, match="solo genera"):
        Decoder(_model()).train()
