"""De un checkpoint al entrenamiento recién montado: lo que hay que reponer, y el azar."""

from collections.abc import Mapping

from torch import Tensor

from enlace.errors import CheckpointError
from enlace.train.checkpoint import MODEL, OPTIMIZER, Found
from enlace.train.container import read_tensors
from enlace.train.state import Counters, Training
from enlace.train.tensors import (
    RNG_PREFIX,
    load_model_tensors,
    load_optimizer_tensors,
    load_rng_tensors,
)


def restore(training: Training, found: Found) -> dict[str, Tensor]:
    """Repone pesos, optimizador, escala, cuentas y picos, y devuelve el azar guardado, sin tocarlo.

    Los tensores se leen en CPU, se copian y se sueltan: en la GPU nunca hay dos modelos.
    """
    load_model_tensors(training.model, read_tensors(found.path / MODEL), found.path / MODEL)
    moments = read_tensors(found.path / OPTIMIZER)
    rng = {name: moments.pop(name) for name in list(moments) if name.startswith(RNG_PREFIX)}
    load_optimizer_tensors(training.model, training.optimizer, moments, found.path / OPTIMIZER)
    try:
        training.counters = Counters(**found.state["counters"])
        training.watch.load_state_dict(found.state["watch"])
        if training.scaler.is_enabled():
            training.scaler.load_state_dict(found.state["scaler"])
    except (TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{found.path} tiene un estado incompleto: {error}") from error
    if bool(moments) != (training.counters.optimizer_steps > 0):
        raise CheckpointError(
            f"{found.path / OPTIMIZER} no casa con los {training.counters.optimizer_steps} pasos "
            "de optimizador que dice el estado"
        )
    return rng


def restore_rng(training: Training, found: Found, rng: Mapping[str, Tensor]) -> None:
    """Repone el azar guardado, si el dispositivo es del mismo tipo.

    En otro tipo de dispositivo el azar es otro generador: queda el recién sembrado, y el segmento
    nuevo ya dice que la igualdad acaba ahí.
    """
    if found.state["config"]["hardware"]["device"] == training.config.hardware.device:
        load_rng_tensors(training.backend.device, rng, found.path / OPTIMIZER)
