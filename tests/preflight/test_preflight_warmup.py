"""El calentamiento de la CPU: un paso de verdad, con los mismos núcleos, que no deja nada."""

import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from enlace.backends import Backend, open_device
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.errors import TrainingAbortedError
from enlace.preflight import warmup
from enlace.preflight.warmup import warm_up
from enlace.train.state import Training
from enlace.train.trainer import StepResult, build_training, train_step
from tests.support import make_config


def backend_of(config: Config) -> Backend:
    return open_device(config.hardware, config.model)


def weights(config: Config) -> list[torch.Tensor]:
    model = build_training(config, backend_of(config)).model
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hardware.dtype": "fp16"},
        {"hardware.activation_checkpointing": "block", "hardware.micro_batch": 2},
    ],
)
def test_da_un_paso_diminuto_con_los_ajustes_de_verdad(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Config] = []

    def spy(training: Training, batch: Batch, step: int) -> StepResult:
        seen.append(training.config)
        return train_step(training, batch, step)

    monkeypatch.setattr(warmup, "train_step", spy)
    config = make_config(changes)
    warm_up(config, backend_of(config))
    (tiny,) = seen
    kept = ("dtype", "sdpa_backend", "activation_checkpointing", "loss_chunk_rows", "threads")
    for name in kept:
        assert getattr(tiny.hardware, name) == getattr(config.hardware, name)
    assert tiny.train == config.train
    assert tiny.hardware.micro_batch == 1
    assert tiny.model.n_layer == 1


def test_no_cambia_lo_que_se_mide_despues() -> None:
    config = make_config()
    expected = weights(config)
    warm_up(config, backend_of(config))
    for one, other in zip(weights(config), expected, strict=True):
        assert torch.equal(one, other)


def test_no_deja_el_modelo_vivo(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[weakref.ref[torch.nn.Module]] = []

    def spy(config: Config, backend: Backend) -> Training:
        training = build_training(config, backend)
        built.append(weakref.ref(training.model))
        return training

    monkeypatch.setattr(warmup, "build_training", spy)
    config = make_config()
    warm_up(config, backend_of(config))
    # Lo que quedara vivo se mediría como memoria del entrenamiento.
    assert [alive() for alive in built] == [None]


def test_en_cuda_no_hay_nada_que_calentar(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Training:
        raise AssertionError

    monkeypatch.setattr(warmup, "build_training", never)
    config = make_config()
    warm_up(config, replace(backend_of(config), device=torch.device("cuda")))
    with pytest.raises(AssertionError):
        warm_up(config, backend_of(config))


def test_una_perdida_no_finita_la_explica_la_medida_y_otro_error_no_se_calla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = [
        TrainingAbortedError("no es finita", reason="non_finite", first=0, last=0),
        RuntimeError("otra cosa"),
    ]

    def fail(*_: object) -> StepResult:
        raise errors.pop(0)

    monkeypatch.setattr(warmup, "train_step", fail)
    config = make_config()
    warm_up(config, backend_of(config))
    with pytest.raises(RuntimeError, match="otra cosa"):
        warm_up(config, backend_of(config))
