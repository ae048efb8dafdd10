"""Entrenar con Muon: una sola decisión con AdamW, y nada que se pierda al guardar o al seguir."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from enlace.backends import Backend, DeviceDescription, open_device
from enlace.errors import CheckpointError, TrainingAbortedError
from enlace.train.checkpoint import OPTIMIZER
from enlace.train.muon import MuonAdamW
from enlace.train.optim import build_optimizer, newton_schulz_dtype
from enlace.train.schedule import learning_rate
from enlace.train.state import Training
from enlace.train.tensors import (
    expected_moments,
    load_optimizer_tensors,
    optimizer_tensors,
)
from enlace.train.trainer import build_training, train_step
from tests.support import make_config
from tests.train.runs import SHORT, last_checkpoint, run_training
from tests.train.streams import PeriodicStream

MUON: dict[str, Any] = {"train.optimizer": "muon"}
FP16 = MUON | {"hardware.dtype": "fp16"}
PLACES = ["blocks.0.attn.wq.weight", "tok_emb.weight", "norm.weight"]
"""Uno de cada grupo: matrices con Muon, matrices con AdamW y vectores."""


def start(changes: dict[str, Any]) -> tuple[Training, PeriodicStream]:
    config = make_config(changes)
    return build_training(config, open_device(config.hardware)), PeriodicStream(config)


def copied(training: Training) -> dict[str, Tensor]:
    """Pesos y momentos, copiados."""
    moments = optimizer_tensors(training.model, training.optimizer)
    return {
        name: tensor.detach().clone()
        for name, tensor in (dict(training.model.named_parameters()) | moments).items()
    }


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def plant(training: Training, name: str, value: float) -> None:
    """Pone `value` en un elemento del gradiente de `name`, cuando ya está sumado."""

    def spoil(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.view(-1)[0] = value

    training.model.get_parameter(name).register_post_accumulate_grad_hook(spoil)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("name", PLACES)
def test_un_infinito_en_un_solo_grupo_salta_los_tres_y_baja_la_escala(
    name: str, value: float
) -> None:
    training, stream = start(FP16)
    train_step(training, stream.batch(0), 0)
    before, scale = copied(training), training.scaler.get_scale()
    plant(training, name, value)
    result = train_step(training, stream.batch(1), 1)
    assert result.skipped
    assert result.scale == scale / 2
    assert_equal(copied(training), before)


@pytest.mark.parametrize("name", PLACES)
def test_el_escalador_solo_tampoco_separa_los_grupos(name: str) -> None:
    # Sin la norma de `train_step`: aunque alguien la quite, el optimizador es uno.
    training, stream = start(FP16)
    train_step(training, stream.batch(0), 0)
    before, scaler = copied(training), training.scaler
    for parameter in training.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    parameter = training.model.get_parameter(name)
    assert parameter.grad is not None
    parameter.grad.view(-1)[0] = math.inf
    scaler.step(training.optimizer)
    scaler.update()
    assert_equal(copied(training), before)
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize("name", PLACES)
def test_sin_fp16_un_infinito_para_antes_de_tocar_nada(name: str) -> None:
    training, stream = start(MUON)
    before = copied(training)
    plant(training, name, math.inf)
    with pytest.raises(TrainingAbortedError, match="los pesos no se han tocado"):
        train_step(training, stream.batch(0), 0)
    assert_equal(copied(training), before)


def test_la_escala_no_cambia_el_paso_ni_el_recorte() -> None:
    changes = MUON | {"train.grad_clip": 1e-3}
    plain, stream = start(changes)
    scaled, _ = start(changes)
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for step in range(2):
        reference = train_step(plain, stream.batch(step), step)
        assert train_step(scaled, stream.batch(step), step).grad_norm == reference.grad_norm > 1e-3
    assert_equal(copied(scaled), copied(plain))


def test_cada_grupo_lleva_su_tasa_en_todos_los_pasos() -> None:
    training, stream = start(MUON | {"train.muon_adamw_lr_ratio": 0.5})
    for step in range(3):
        train_step(training, stream.batch(step), step)
        lr = learning_rate(step, training.config.train)
        rates = {group["rule"]: group["lr"] for group in training.optimizer.param_groups}
        assert rates == {"adamw": 0.5 * lr, "muon": lr}


def test_baja_la_perdida() -> None:
    training, stream = start(MUON | {"train.steps": 12})
    losses = [train_step(training, stream.batch(step), step).loss for step in range(12)]
    assert losses[-1] < 0.9 * losses[0]


def test_se_guarda_solo_lo_que_hace_falta_y_con_otro_optimizador_no_se_sigue(
    tmp_path: Path,
) -> None:
    config = make_config(SHORT | MUON)
    run_training(tmp_path, config)
    saved = load_file(last_checkpoint(tmp_path) / OPTIMIZER)
    by_moment: dict[str, set[str]] = {}
    for key in saved:
        moment, name = key.split("/", 1)
        by_moment.setdefault(moment, set()).add(name)
    model = build_training(config, open_device(config.hardware)).model
    inner = {f"blocks.{name}" for name, p in model.blocks.named_parameters() if p.ndim == 2}
    rest = {name for name, _ in model.named_parameters()} - inner
    del by_moment["rng"]
    assert by_moment == {"momentum": inner, "step": rest, "exp_avg": rest, "exp_avg_sq": rest}
    with pytest.raises(CheckpointError, match=r"train\.optimizer='muon' y ahora vale 'adamw'"):
        run_training(tmp_path, make_config(SHORT))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("momentum/blocks.0.attn.wq.weight", None, r"falta momentum/blocks\.0\.attn\.wq"),
        ("exp_avg/blocks.0.attn.wq.weight", torch.zeros(32, 32), "sobra exp_avg/blocks"),
        ("momentum/blocks.0.attn.wq.weight", torch.zeros(32, 31), "es .32, 31. .*debe ser .32, 32"),
        ("momentum/blocks.0.attn.wq.weight", torch.zeros(32, 32).half(), "float16 y debe ser"),
        ("exp_avg_sq/norm.weight", None, r"falta exp_avg_sq/norm\.weight"),
    ],
)
def test_un_estado_que_no_es_el_suyo_se_rechaza(
    name: str, wrong: Tensor | None, message: str
) -> None:
    training, stream = start(MUON)
    train_step(training, stream.batch(0), 0)
    tensors = copied(training)
    moments = {key: value for key, value in tensors.items() if "/" in key}
    expected = expected_moments(training.model, training.optimizer)
    assert moments.keys() == expected.keys()
    moments.pop(name, None)
    if wrong is not None:
        moments[name] = wrong
    with pytest.raises(CheckpointError, match=message):
        load_optimizer_tensors(training.model, training.optimizer, moments, Path("aquí"))
    assert_equal(copied(training), tensors)


def test_reponer_el_estado_sigue_igual_bit_a_bit() -> None:
    training, stream = start(MUON)
    train_step(training, stream.batch(0), 0)
    other, _ = start(MUON)
    other.model.load_state_dict(training.model.state_dict())
    moments = optimizer_tensors(training.model, training.optimizer)
    load_optimizer_tensors(other.model, other.optimizer, moments, Path("aquí"))
    for one in (training, other):
        train_step(one, stream.batch(1), 1)
    assert_equal(copied(other), copied(training))


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("cuda", torch.bfloat16, torch.bfloat16),
        ("cuda", torch.float16, torch.float32),
        ("cuda", torch.float32, torch.float32),
        ("cpu", torch.bfloat16, torch.float32),
        ("cpu", torch.float32, torch.float32),
    ],
)
def test_la_precision_de_la_iteracion(
    device: str, dtype: torch.dtype, expected: torch.dtype
) -> None:
    description = DeviceDescription(device, "de mentira", None, 0)
    backend = Backend(torch.device(device), dtype, "math", False, 1, description)
    assert newton_schulz_dtype(backend) == expected
    model = nn.Module()
    model.blocks = nn.ModuleList([nn.Linear(2, 2)])
    optimizer = build_optimizer(model, make_config(MUON).train, backend)
    assert isinstance(optimizer, MuonAdamW)


def test_es_el_mismo_entrenamiento_con_otro_micro_batch() -> None:
    outcomes = []
    for micro_batch in (8, 2):
        training, stream = start(MUON | {"hardware.micro_batch": micro_batch})
        train_step(training, stream.batch(0), 0)
        outcomes.append(copied(training))
    for name, tensor in outcomes[0].items():
        torch.testing.assert_close(outcomes[1][name], tensor, rtol=1e-3, atol=1e-5, msg=name)
