"""Un paso espera al dispositivo lo justo: al acabar los micro-batches y al acabar la norma.

En una GPU, leer un valor (`.item()`) o pedir algo cuya forma depende de los valores (`nonzero`)
detiene a la CPU hasta que la tarjeta termina lo que tiene encolado. En CPU las operaciones son las
mismas, así que aquí se cuentan.
"""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from enlace.backends import open_device
from enlace.model import loss
from enlace.model.loss import IGNORED
from enlace.model.transformer import Transformer
from enlace.train import trainer
from enlace.train.state import Training
from enlace.train.trainer import accumulate, build_training, train_step
from tests.support import make_config
from tests.train.streams import PeriodicStream

_WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim"}


class _Waits(TorchDispatchMode):
    """Las operaciones que esperan, y cuántas hubo después de la última."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.later = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in _WAITS or (name.startswith("index") and _is_masked(args)):
            self.found.append(name)
            self.later = 0
        else:
            self.later += 1
        return func(*args, **(kwargs or {}))


def _is_masked(args: tuple[Any, ...]) -> bool:
    groups = [arg for arg in args if isinstance(arg, list | tuple)]
    return any(getattr(one, "dtype", None) == torch.bool for group in groups for one in group)


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sin las dos comprobaciones de valores que solo se hacen en CPU."""
    monkeypatch.setattr(Transformer, "_check_ids", lambda *_: None)
    monkeypatch.setattr(loss, "_check_targets", lambda *_: None)


def _start(dtype: str, micro_batch: int, **more: Any) -> tuple[Training, PeriodicStream]:
    changes = {"hardware.dtype": dtype, "hardware.micro_batch": micro_batch, **more}
    config = make_config(changes)
    return build_training(config, open_device(config.hardware)), PeriodicStream(config)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_entre_micro_batches_no_se_espera(dtype: str, checkpointing: str) -> None:
    training, stream = _start(
        dtype, 2, **{"hardware.activation_checkpointing": checkpointing, "model.dropout": 0.1}
    )
    batch = stream.batch(0)
    targets = int((batch.targets != IGNORED).sum())
    with _Waits() as waits:
        accumulate(training, batch, targets)
    assert waits.found == ["_local_scalar_dense"]
    assert waits.later == 0


@pytest.mark.parametrize(("dtype", "allowed"), [("fp32", 1), ("fp16", 4)])
def test_al_actualizar_se_espera_un_numero_fijo_de_veces(dtype: str, allowed: int) -> None:
    """En fp32, por la norma; en fp16, además, por si hubo desborde y por la escala."""
    training, stream = _start(dtype, 4)
    train_step(training, stream.batch(0), 0)
    value = accumulate(training, stream.batch(1), 1)
    with _Waits() as waits:
        trainer._update(training, value, 1)
        training.scaler.get_scale()
    assert len(waits.found) <= allowed, waits.found


def test_una_espera_de_mas_se_ve(monkeypatch: pytest.MonkeyPatch) -> None:
    training, stream = _start("fp32", 4)
    inner = training.model.loss_sums

    def nosy(*args: Any) -> Any:
        sums = inner(*args)
        assert sums.ce.item() > 0
        return sums

    monkeypatch.setattr(training.model, "loss_sums", nosy)
    batch = stream.batch(0)
    with _Waits() as waits:
        accumulate(training, batch, 1)
    assert len(waits.found) == 1 + training.config.accumulation
