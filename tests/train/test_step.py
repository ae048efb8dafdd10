"""Un paso: la división única, los saltos de fp16 y lo que nunca toca los pesos."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.errors import TrainingAbortedError
from enlace.model.loss import IGNORED, LossSums
from enlace.train.schedule import learning_rate
from enlace.train.state import Training
from enlace.train.trainer import build_training, train_step
from tests.support import make_config
from tests.train.streams import PeriodicStream

FP16 = {"hardware.dtype": "fp16"}


def start(changes: dict[str, Any] | None = None) -> tuple[Training, PeriodicStream]:
    config: Config = make_config(changes)
    return build_training(config, open_device(config.hardware)), PeriodicStream(config)


def weights(training: Training) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in training.model.named_parameters()}


def break_loss(training: Training, factor: float, calls: set[int] | None = None) -> None:
    """Multiplica la pérdida de las llamadas elegidas (todas si no se dice) por `factor`."""
    model: Any = training.model
    inner, counter = model.loss_sums, itertools.count()

    def broken(ids_BT: Tensor, targets_BT: Tensor) -> LossSums:
        sums: LossSums = inner(ids_BT, targets_BT)
        if calls is None or next(counter) in calls:
            return sums._replace(objective=sums.objective * factor, ce=sums.ce * factor)
        return sums

    model.loss_sums = broken


def test_la_perdida_y_la_norma_no_dependen_del_micro_batch() -> None:
    outcomes = []
    for micro_batch in (8, 4, 2, 1):
        training, stream = start({"hardware.micro_batch": micro_batch})
        result = train_step(training, stream.batch(0), 0)
        outcomes.append((result, weights(training)))
    (reference, expected), *others = outcomes
    for result, found in others:
        assert result.loss == pytest.approx(reference.loss, rel=1e-6)
        assert result.grad_norm == pytest.approx(reference.grad_norm, rel=1e-5)
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=2e-6, msg=name)


def test_el_gradiente_es_el_de_la_media_sobre_todo_el_paso() -> None:
    training, stream = start({"hardware.micro_batch": 1, "model.z_loss_weight": 1e-2})
    batch = stream.batch(0)
    logits_STV, _ = training.model(batch.ids)
    logits_NV, targets_N = logits_STV.flatten(0, 1), batch.targets.flatten()
    valid_N = targets_N != IGNORED
    mean_ce = F.cross_entropy(logits_NV, targets_N, ignore_index=IGNORED)
    mean_z = logits_NV[valid_N].logsumexp(-1).square().mean()
    (mean_ce + 1e-2 * mean_z).backward()
    norm = torch.stack([p.grad.norm() for p in training.model.parameters() if p.grad is not None])
    expected_norm = norm.norm().item()
    training.optimizer.zero_grad()
    result = train_step(training, batch, 0)
    assert result.loss == pytest.approx(mean_ce.item(), rel=1e-5)
    assert result.grad_norm == pytest.approx(expected_norm, rel=1e-4)


def test_el_recorte_va_tras_deshacer_la_escala() -> None:
    plain, stream = start({"train.grad_clip": 1e-3})
    scaled, _ = start({"train.grad_clip": 1e-3})
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    reference = train_step(plain, stream.batch(0), 0)
    result = train_step(scaled, stream.batch(0), 0)
    assert result.grad_norm == reference.grad_norm > 1e-3
    for name, tensor in weights(scaled).items():
        assert torch.equal(tensor, weights(plain)[name]), name


def test_un_desborde_de_fp16_se_salta_se_cuenta_y_no_toca_nada() -> None:
    training, stream = start(FP16)
    train_step(training, stream.batch(0), 0)
    before, scale = weights(training), training.scaler.get_scale()
    adam = {k: v["step"].item() for k, v in training.optimizer.state.items()}
    break_loss(training, math.inf, calls={1})
    result = train_step(training, stream.batch(1), 1)
    assert result.skipped
    assert not math.isfinite(result.grad_norm)
    assert result.scale == scale / 2
    assert all(torch.equal(value, before[name]) for name, value in weights(training).items())
    assert {k: v["step"].item() for k, v in training.optimizer.state.items()} == adam
    counters = training.counters
    assert (counters.step, counters.optimizer_steps, counters.skipped) == (2, 1, 1)
    assert counters.consecutive_skips == 1
    del training.model.loss_sums  # vuelve la del módulo
    after = train_step(training, stream.batch(2), 2)
    assert after.lr == learning_rate(2, training.config.train)
    assert not after.skipped
    assert training.counters.optimizer_steps == 2
    assert training.counters.consecutive_skips == 0
    assert all(parameter.grad is None for parameter in training.model.parameters())


def test_fp16_se_parece_a_fp32() -> None:
    half, stream = start(FP16)
    single, _ = start()
    result, reference = (train_step(t, stream.batch(0), 0) for t in (half, single))
    assert result.loss == pytest.approx(reference.loss, rel=2e-3)
    assert result.grad_norm == pytest.approx(reference.grad_norm, rel=2e-2)
    assert result.loss != reference.loss


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_sin_fp16_un_paso_no_finito_para_antes_de_actualizar(dtype: str, factor: float) -> None:
    training, stream = start({"hardware.dtype": dtype})
    before = weights(training)
    break_loss(training, factor, calls={2})
    with pytest.raises(TrainingAbortedError, match=r"paso 0: pérdida (inf|nan).*train\.lr"):
        train_step(training, stream.batch(0), 0)
    assert all(torch.equal(value, before[name]) for name, value in weights(training).items())
    assert not training.optimizer.state
    assert training.counters.optimizer_steps == 0


def test_demasiados_saltos_seguidos_abortan() -> None:
    training, stream = start(FP16 | {"train.fp16_max_skips": 3})
    break_loss(training, math.inf)
    for step in range(2):
        assert train_step(training, stream.batch(step), step).skipped
    with pytest.raises(TrainingAbortedError, match="3 pasos seguidos"):
        train_step(training, stream.batch(2), 2)


def test_una_escala_hundida_aborta() -> None:
    changes = {"train.fp16_init_scale": 8.0, "train.fp16_min_scale": 4.0}
    training, stream = start(FP16 | changes)
    break_loss(training, math.inf)
    assert train_step(training, stream.batch(0), 0).scale == 4.0
    with pytest.raises(TrainingAbortedError, match=r"escala.*2.*fp16_min_scale=4"):
        train_step(training, stream.batch(1), 1)


def test_la_escala_crece_tras_el_intervalo() -> None:
    training, stream = start(FP16 | {"train.fp16_growth_interval": 2})
    scales = [train_step(training, stream.batch(step), step).scale for step in range(4)]
    assert scales == [1024.0, 2048.0, 2048.0, 4096.0]


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_un_paso_sin_objetivos_no_actualiza_y_se_cuenta(dtype: str) -> None:
    training, _ = start({"hardware.dtype": dtype})
    stream = PeriodicStream(training.config, empty_at=1)
    train_step(training, stream.batch(0), 0)
    before = weights(training)
    result = train_step(training, stream.batch(1), 1)
    assert (result.loss, result.grad_norm, result.skipped) == (0.0, 0.0, False)
    assert (training.counters.empty, training.counters.step) == (1, 2)
    assert training.counters.optimizer_steps == 1
    assert all(torch.equal(value, before[name]) for name, value in weights(training).items())


def test_un_micro_batch_sin_objetivos_no_estorba() -> None:
    training, stream = start({"hardware.micro_batch": 2})
    whole, _ = start({"hardware.micro_batch": 8})
    ids_ST, targets_ST = stream.batch(0)
    targets_ST[2:4] = IGNORED
    batch = Batch(ids_ST, targets_ST)
    split, reference = train_step(training, batch, 0), train_step(whole, batch, 0)
    assert split.loss == pytest.approx(reference.loss, rel=1e-6)
    assert split.grad_norm == pytest.approx(reference.grad_norm, rel=1e-5)


def test_la_fabrica_da_los_mismos_pesos_con_la_misma_semilla() -> None:
    first, second = (weights(start({"train.seed": 3})[0]) for _ in range(2))
    other = weights(start({"train.seed": 4})[0])
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["tok_emb.weight"], other["tok_emb.weight"])


def test_los_embeddings_siguen_atados_tras_un_paso() -> None:
    training, stream = start()
    train_step(training, stream.batch(0), 0)
    assert training.model.tok_emb.weight is training.model.lm_head.weight


def test_la_escala_solo_se_usa_en_fp16() -> None:
    assert not start()[0].scaler.is_enabled()
    assert not start({"hardware.dtype": "bf16"})[0].scaler.is_enabled()
    assert start(FP16)[0].scaler.get_scale() == 1024.0
