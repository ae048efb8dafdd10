"""Muon en los bordes de su configuración: nada deja de ser finito ni se sale de lo que promete."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from enlace.backends import open_device
from enlace.errors import ConfigError, TrainingAbortedError
from enlace.train.muon import RMS_MATCH, MuonAdamW, orthogonalize
from enlace.train.optim import parameter_groups
from enlace.train.state import Training
from enlace.train.trainer import build_training, train_step
from tests.support import make_config
from tests.train.streams import PeriodicStream

MUON: dict[str, Any] = {"train.optimizer": "muon", "model.n_layer": 1, "train.warmup": 0}


def trained(steps: int, **changes: Any) -> Training:
    config = make_config(MUON | {key.replace("__", "."): v for key, v in changes.items()})
    training, stream = build_training(config, open_device(config.hardware)), PeriodicStream(config)
    for step in range(steps):
        train_step(training, stream.batch(step), step)
    return training


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_una_capa_con_la_salida_atada_o_suelta(tied: bool, decay: float) -> None:
    training = trained(2, model__tie_embeddings=tied, train__weight_decay=decay)
    rest, _, inner = parameter_groups(training.model, training.config.train)
    assert len(rest["params"]) == (1 if tied else 2)
    assert len(inner["params"]) == 7
    assert (inner["weight_decay"], rest["weight_decay"]) == (decay, decay)
    assert all(torch.isfinite(p).all() for p in training.model.parameters())


@pytest.mark.parametrize("momentum", [0.0, 0.999])
def test_los_extremos_de_la_memoria_entrenan(momentum: float) -> None:
    training = trained(2, train__muon_momentum=momentum)
    assert all(torch.isfinite(p).all() for p in training.model.parameters())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("muon_momentum", 1.0),
        ("muon_momentum", -0.1),
        ("muon_steps", 0),
        ("muon_adamw_lr_ratio", 0.0),
        ("lr", float("inf")),
    ],
)
def test_lo_que_no_puede_entrenar_se_rechaza_al_leerlo(key: str, value: float) -> None:
    with pytest.raises((ConfigError, ValueError), match=key):
        make_config(MUON | {f"train.{key}": value})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 5), (4, 32)])
def test_de_una_a_diez_iteraciones_los_valores_singulares_quedan_acotados(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    x_BMN = torch.randn(2, *shape, generator=torch.Generator().manual_seed(2))
    for steps in range(1, 11):
        largest = torch.linalg.svdvals(orthogonalize(x_BMN, steps, dtype).float()).max()
        assert largest < 1.3, steps


@pytest.mark.parametrize("value", [1e-38, 1e38, 0.0])
def test_un_gradiente_de_cualquier_tamano_mueve_lo_mismo_o_nada(value: float) -> None:
    weight = nn.Parameter(torch.zeros(4, 4))
    group = {"params": [weight], "rule": "muon", "weight_decay": 0.0, "lr_scale": 1.0}
    rest = {"params": [], "rule": "adamw", "weight_decay": 0.0, "lr_scale": 1.0}
    options: dict[str, Any] = {"ns_steps": 5, "ns_dtype": torch.float32, "adamw": {}}
    optimizer = MuonAdamW([group, rest], lr=0.1, momentum=0.95, **options)
    weight.grad = value * torch.eye(4)
    optimizer.step()
    assert torch.isfinite(weight).all()
    moved = weight.detach().norm().item()
    expected = 0.1 * RMS_MATCH * 4**0.5 * 4**0.5
    assert moved == (0 if value == 0 else pytest.approx(expected, rel=0.3))


def test_una_tasa_enorme_acaba_en_un_error_claro_y_no_en_nan() -> None:
    config = make_config(MUON | {"train.lr": 1e30})
    training, stream = build_training(config, open_device(config.hardware)), PeriodicStream(config)
    train_step(training, stream.batch(0), 0)
    before = [p.detach().clone() for p in training.model.parameters()]
    with pytest.raises(TrainingAbortedError, match="los pesos no se han tocado"):
        train_step(training, stream.batch(1), 1)
    after = list(training.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_la_escala_que_se_hunde_para_sin_tocar_los_pesos() -> None:
    changes = {"hardware.dtype": "fp16", "train.fp16_max_skips": 3}
    config = make_config(MUON | changes)
    training, stream = build_training(config, open_device(config.hardware)), PeriodicStream(config)
    before = [p.detach().clone() for p in training.model.parameters()]

    def spoil(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.fill_(float("inf"))

    matrix = training.model.get_parameter("blocks.0.attn.wq.weight")
    matrix.register_post_accumulate_grad_hook(spoil)
    for step in range(2):
        assert train_step(training, stream.batch(step), step).skipped
    with pytest.raises(TrainingAbortedError, match="fp16"):
        train_step(training, stream.batch(2), 2)
    after = list(training.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert training.optimizer.state == {}
