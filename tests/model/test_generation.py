"""La generación con caché da lo mismo que sin ella, y muestrea como transformers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from enlace.model.generation import stream_ids
from enlace.model.sampling import Sampling, next_ids, warp_logits
from enlace.model.transformer import Transformer
from tests.support import make_config


def _model(sdpa_backend: str = "flash", **changes: Any) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(
        make_config({f"model.{key}": value for key, value in changes.items()}).model, sdpa_backend
    )
    with torch.no_grad():  # logits lejos del empate
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _prompts(rows: int = 3, length: int = 5) -> Tensor:
    return torch.randint(256, (rows, length), generator=torch.Generator().manual_seed(1))


def _without_cache(
    model: Transformer, ids: Tensor, new_tokens: int, temperature: float, top_k: int, seed: int
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(new_tokens):
        with torch.no_grad():
            logits = model(ids)[0][:, -1]
        new = next_ids(logits, Sampling(temperature, top_k), generator)
        ids = torch.cat((ids, new[:, None]), dim=1)
    return ids


@pytest.mark.parametrize("sdpa_backend", ["flash", "mem_efficient"])
@pytest.mark.parametrize(("temperature", "top_k"), [(0.0, 0), (1.0, 0), (0.7, 5), (1.5, 1000)])
def test_con_cache_y_sin_ella_salen_los_mismos_ids(
    temperature: float, top_k: int, sdpa_backend: str
) -> None:
    model, ids = _model(sdpa_backend), _prompts()
    expected = _without_cache(model, ids, 20, temperature, top_k, seed=8)
    generator = torch.Generator().manual_seed(8)
    result = model.generate(ids, 20, temperature, top_k, generator=generator)
    assert torch.equal(result, expected)
    assert result.shape == (3, 25)


def test_cada_secuencia_del_batch_es_independiente() -> None:
    model, ids = _model(), _prompts()
    together = model.generate(ids, 20, temperature=0.0)
    alone = torch.cat([model.generate(row, 20, temperature=0.0) for row in ids.split(1)])
    assert torch.equal(together, alone)
    assert len({tuple(row) for row in together[:, 5:].tolist()}) == 3


def test_los_logits_con_cache_son_los_del_modelo() -> None:
    model, ids = _model(), _prompts(length=12)
    model.eval()
    with torch.inference_mode():
        whole = model(ids)[0]
        cache = model.new_cache(3, 12)
        steps = [model.next_logits(ids[:, :4], cache)]
        steps += [model.next_logits(ids[:, [i]], cache) for i in range(4, 12)]
    torch.testing.assert_close(torch.stack(steps, 1), whole[:, 3:], rtol=0, atol=1e-5)
    assert cache.length == 12


def test_con_la_cache_empezada_los_tokens_van_de_uno_en_uno() -> None:
    model, ids = _model(), _prompts()
    with torch.inference_mode():
        cache = model.new_cache(3, 10)
        model.next_logits(ids, cache)
        with pytest.raises(ValueError, match="de uno en uno"):
            model.next_logits(ids, cache)


def test_top_k_cero_los_deja_todos() -> None:
    logits = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(warp_logits(logits, Sampling()), logits)


def test_las_muestras_siguen_las_probabilidades() -> None:
    logits = torch.tensor([[0.0, math.log(2), math.log(5), -math.inf]]).expand(20000, 4)
    sample = next_ids(logits, Sampling(), torch.Generator().manual_seed(0))
    frequencies = sample.bincount(minlength=4) / 20000
    torch.testing.assert_close(
        frequencies, torch.tensor([1 / 8, 2 / 8, 5 / 8, 0.0]), rtol=0, atol=0.015
    )


def test_temperatura_casi_cero_es_voraz() -> None:
    model, ids = _model(), _prompts()
    greedy = model.generate(ids, 10, temperature=0.0)
    assert torch.equal(model.generate(ids, 10, temperature=1e-6), greedy)
    assert torch.equal(model.generate(ids, 10, temperature=1.0, top_k=1), greedy)


def test_el_generador_decide_las_muestras() -> None:
    model, ids = _model(), _prompts()
    draws = [
        model.generate(ids, 15, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_parada_por_id() -> None:
    model, ids = _model(), _prompts()
    free = model.generate(ids, 20, temperature=0.0)[:, 5:]
    stop = int(free[0, 6])
    first = [row.index(stop) if stop in row else 20 for row in free.tolist()]
    assert max(first) > first[0]  # alguna secuencia sigue cuando la primera ya paró
    stopped = model.generate(ids, 20, temperature=0.0, stop_ids=[stop])[:, 5:]
    assert stopped.shape[1] == min(20, max(first) + 1)
    for row, whole, end in zip(stopped.tolist(), free.tolist(), first, strict=True):
        assert row[: end + 1] == whole[: len(row)][: end + 1]
        assert set(row[end:]) <= {stop}
    alone = model.generate(ids[:1], 20, temperature=0.0, stop_ids=[stop])
    assert alone.shape[1] == 5 + first[0] + 1


def test_el_flujo_da_los_ids_segun_salen() -> None:
    model, ids = _model(), _prompts()
    stream = stream_ids(model, ids, 6, Sampling(0.0))
    first = next(stream)
    assert not model.training
    rest = list(stream)
    expected = model.generate(ids, 6, temperature=0.0)[:, 5:]
    assert torch.equal(torch.stack([first, *rest], dim=1), expected)
    assert model.training


@pytest.mark.parametrize("training", [True, False])
def test_el_modo_queda_como_estaba(training: bool) -> None:
    model, ids = _model(dropout=0.5), _prompts()
    model.train(training)
    expected = model.generate(ids, 6, temperature=0.0)
    assert model.training is training
    assert torch.equal(model.generate(ids, 6, temperature=0.0), expected)
    stream = stream_ids(model, ids, 6, Sampling(0.0))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert model.training is training


def test_lo_generado_sirve_para_entrenar() -> None:
    model = _model()
    ids = model.generate(_prompts(), 6, temperature=0.0)
    assert not ids.is_inference()
    loss = model(ids, ids)[1]
    loss.backward()
    assert model.tok_emb.weight.grad is not None


def test_bajo_autocast_la_cache_es_de_16_bits() -> None:
    model, ids = _model(), _prompts()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.new_cache(1, 4).extend(0, *torch.zeros(2, 1, 2, 1, 8))[0].dtype == (
            torch.bfloat16
        )
        result = model.generate(ids, 8, temperature=0.0)
    assert result.shape == (3, 13)


def test_mas_alla_de_seq_len_se_rechaza() -> None:
    model, ids = _model(), _prompts()
    assert model.generate(ids, 27, temperature=0.0).shape == (3, 32)
    with pytest.raises(ValueError, match=r"= 33 supera seq_len=32; acorta"):
        model.generate(ids, 28)


def test_cero_tokens_nuevos() -> None:
    ids = _prompts()
    assert torch.equal(_model().generate(ids, 0), ids)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_new_tokens": -1},
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
    ],
)
def test_argumentos_imposibles(arguments: dict[str, Any]) -> None:
    name, value = next(iter(arguments.items()))
    with pytest.raises(ValueError, match=f"{name}={value}"):
        _model().generate(_prompts(), **({"max_new_tokens": 3} | arguments))


@pytest.mark.parametrize("shape", [(1, 0), (0, 3), (4,)])
def test_prompt_vacio(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="al menos un token"):
        _model().generate(torch.zeros(shape, dtype=torch.int64), 3)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-45, 1e-38, 1e-31, 1e-30, 1e-8])
def test_ninguna_temperatura_desborda(temperature: float) -> None:
    logits = torch.tensor([[1.0, 80.0, -80.0], [3e4, -3e4, 2e4]])
    sample = next_ids(logits, Sampling(temperature), torch.Generator().manual_seed(0))
    assert sample.tolist() == [1, 0]
