import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from enlace.data.streams import Batch
from enlace.errors import DataError
from enlace.evaluation.loss import LossFigures, evaluate_loss, evaluation_mode, loss_evaluator
from enlace.model.loss import LossSums
from tests.evaluation.support_evaluation import split, tiny_backend, tiny_batch, tiny_model
from tests.support import make_config


class _ExactModel(nn.Module):
    """Cuesta tantos octavos de nat como diga el objetivo: toda suma es exacta en fp32."""

    def loss_sums(self, ids_BT: Tensor, targets_BT: Tensor) -> LossSums:
        valid = targets_BT[targets_BT != -100]
        ce = valid.float().sum() / 8
        return LossSums(ce, ce, torch.zeros(()), torch.tensor(valid.numel()))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7])
def test_las_cifras_son_identicas_con_cualquier_tamano_de_lote(rows: int) -> None:
    batch, model, backend = tiny_batch(), _ExactModel(), tiny_backend()
    counts = torch.arange(256) % 3
    whole = evaluate_loss(model, [batch], backend, counts)  # type: ignore[arg-type]
    parts = evaluate_loss(model, split(batch, rows), backend, counts)  # type: ignore[arg-type]
    assert parts == whole
    valid = batch.targets[batch.targets != -100]
    assert whole.loss == int(valid.sum()) / 8 / valid.numel()


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_la_perdida_del_modelo_es_la_media_por_token_calculada_a_mano(rows: int) -> None:
    batch, model, backend = tiny_batch(), tiny_model(), tiny_backend()
    with torch.no_grad():
        logits = model(batch.ids)[0]
        assert logits is not None
        nats = functional.cross_entropy(
            logits.double().flatten(0, 1), batch.targets.flatten(), reduction="sum"
        )
    tokens = int((batch.targets != -100).sum())
    figures = evaluate_loss(model, split(batch, rows), backend)
    assert figures.tokens == tokens
    assert figures.loss == pytest.approx(float(nats) / tokens, rel=1e-6)
    assert figures.perplexity == math.exp(figures.loss)
    # La media de medias, el error habitual, está lejos de esta tolerancia.
    per_row = [evaluate_loss(model, [row], backend).loss for row in split(batch, 1)]
    assert abs(sum(per_row) / len(per_row) / figures.loss - 1) > 1e-4


def test_la_z_loss_no_entra_en_la_validacion() -> None:
    batch, backend = tiny_batch(), tiny_backend()
    heavy = make_config({"model.z_loss_weight": 10.0})
    assert evaluate_loss(tiny_model(heavy), [batch], backend) == evaluate_loss(
        tiny_model(make_config({"model.z_loss_weight": 0.0})), [batch], backend
    )


def test_los_bits_por_byte_siguen_la_convencion_escrita() -> None:
    targets = torch.tensor([[8, 16, 0, -100]])
    batch = Batch(torch.ones_like(targets), targets)
    counts = torch.zeros(256, dtype=torch.int64)
    counts[8], counts[16] = 2, 5
    figures = evaluate_loss(_ExactModel(), [batch], tiny_backend(), counts)  # type: ignore[arg-type]
    # El 0 es el separador: su pérdida cuenta (aquí, cero octavos) y sus bytes no.
    assert figures.raw_bytes == 7
    assert figures.tokens == 3
    assert figures.bits_per_byte == (8 / 8 + 16 / 8) / (math.log(2) * 7)


def test_sin_bytes_por_id_no_hay_bits_por_byte() -> None:
    figures = evaluate_loss(tiny_model(), [tiny_batch()], tiny_backend())
    assert (figures.bits_per_byte, figures.raw_bytes) == (None, None)


IGNORED = Batch(torch.ones(1, 4).long(), torch.full((1, 4), -100))


@pytest.mark.parametrize("batches", [[], [IGNORED]])
def test_sin_tokens_que_predecir_hay_un_mensaje_y_no_una_division(batches: list[Batch]) -> None:
    with pytest.raises(DataError, match="ningún token que predecir"):
        evaluate_loss(tiny_model(), batches, tiny_backend())


def test_cada_modulo_queda_en_el_modo_en_que_estaba_aunque_falle() -> None:
    model = tiny_model()
    model.train()
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    evaluate_loss(model, [tiny_batch()], tiny_backend())
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ValueError, match="supera seq_len"), evaluation_mode(model):
        model(torch.ones(1, 33).long())
    assert [module.training for module in model.modules()] == before
    assert len(set(before)) == 2


def test_evaluar_no_consume_azar_ni_deja_gradientes_ni_cambia_con_dropout() -> None:
    config = make_config({"model.dropout": 0.5})
    model, backend = tiny_model(config), tiny_backend(config)
    model.train()
    state = torch.get_rng_state()
    first = evaluate_loss(model, [tiny_batch()], backend)
    assert evaluate_loss(model, [tiny_batch()], backend) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_el_evaluador_del_bucle_abre_los_lotes_en_cada_llamada() -> None:
    batch, model, backend = tiny_batch(), tiny_model(), tiny_backend()
    evaluator = loss_evaluator(lambda: split(batch, 3), backend, torch.ones(256).long())
    first, second = dict(evaluator(model)), dict(evaluator(model))
    assert first == second
    figures = evaluate_loss(model, split(batch, 3), backend, torch.ones(256).long())
    assert first == {
        "val_loss": figures.loss,
        "val_perplexity": figures.perplexity,
        "val_bits_per_byte": figures.bits_per_byte,
    }


def test_una_perdida_enorme_no_desborda_y_en_json_es_nula() -> None:
    targets = torch.full((1, 4), 255)
    huge = Batch(torch.ones_like(targets), targets * 100)
    figures = evaluate_loss(_ExactModel(), [huge], tiny_backend())  # type: ignore[arg-type]
    assert figures.perplexity == math.inf
    assert figures.as_json()["perplexity"] is None
    assert LossFigures(math.nan, math.nan, None, 1, None).as_json()["loss"] is None
