"""El modelo, el optimizador y el azar como tensores con nombre, de ida y de vuelta.

Los nombres son los del modelo sin compilar. Un parámetro atado aparece una sola vez, con el primer
nombre que le da el modelo. La carga es estricta: un nombre que falta o sobra, otra forma u otro
dtype son un error, nunca un valor por defecto.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from enlace.errors import CheckpointError

RNG_PREFIX = "rng/"
"""Cómo empiezan los nombres de los estados de azar; los demás son momentos del optimizador."""

_MOMENTS = {"adamw": ("step", "exp_avg", "exp_avg_sq"), "muon": ("momentum",)}
"""El estado de cada parámetro según la `rule` de su grupo: `step` es un escalar; lo demás, de su
forma. Todo en fp32."""


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parámetros y buffers persistentes del modelo; los atados, una vez."""
    plain = cast(nn.Module, getattr(model, "_orig_mod", model))
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in plain.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def load_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copia `tensors` sobre el modelo, sin cambiar ningún almacenamiento.

    Raises:
        CheckpointError: los nombres, formas o dtypes no son los del modelo.
    """
    own = model_tensors(model)
    _check_same(own, tensors, where)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Los momentos como `exp_avg/<parámetro>`; vacío si aún no ha dado ningún paso."""
    tensors = {}
    for name, parameter in _parameters(model).items():
        for moment, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{moment}/{name}"] = value
    return tensors


def load_optimizer_tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    where: Path,
) -> None:
    """Repone los momentos en el dispositivo de cada parámetro.

    Raises:
        CheckpointError: falta o sobra alguno, o no tiene la forma de su parámetro.
    """
    if tensors:
        _check_same(expected_moments(model, optimizer), tensors, where)
    optimizer.state.clear()
    for name, parameter, names in _stateful(model, optimizer) if tensors else ():
        moments = {moment: tensors[f"{moment}/{name}"] for moment in names}
        optimizer.state[parameter] = {
            moment: value.to(parameter.device, copy=True) for moment, value in moments.items()
        }


def rng_tensors(device: torch.device) -> dict[str, Tensor]:
    """El estado de los generadores de torch que el entrenamiento consume (uint8)."""
    states = {f"{RNG_PREFIX}cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states[f"{RNG_PREFIX}cuda"] = torch.cuda.get_rng_state(device)
    return states


def load_rng_tensors(device: torch.device, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Repone los generadores de torch.

    Raises:
        CheckpointError: falta alguno, o no es un estado válido.
    """
    missing = rng_tensors(device).keys() - tensors.keys()
    if missing:
        raise CheckpointError(f"{where} no tiene el estado de azar {sorted(missing)[0]}")
    try:
        torch.set_rng_state(tensors[f"{RNG_PREFIX}cpu"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(tensors[f"{RNG_PREFIX}cuda"], device)
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(f"{where} tiene un estado de azar ilegible: {error}") from error


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    plain = cast(nn.Module, getattr(model, "_orig_mod", model))
    return dict(plain.named_parameters())


def _stateful(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor, tuple[str, ...]]]:
    """Cada parámetro con su nombre y los de sus momentos, en el orden del modelo."""
    rules = {id(p): group["rule"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in _parameters(model).items():
        yield name, parameter, _MOMENTS[rules[id(parameter)]]


def expected_moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Un tensor sin datos (meta) por momento, con la forma y el dtype que debe tener."""
    expected = {}
    for name, parameter, moments in _stateful(model, optimizer):
        for moment in moments:
            shape = () if moment == "step" else parameter.shape
            expected[f"{moment}/{name}"] = torch.empty(shape, dtype=torch.float32, device="meta")
    return expected


def _check_same(own: Mapping[str, Tensor], other: Mapping[str, Tensor], where: Path) -> None:
    missing, surplus = own.keys() - other.keys(), other.keys() - own.keys()
    if missing or surplus:
        kind, names = ("falta", missing) if missing else ("sobra", surplus)
        raise CheckpointError(
            f"{where} no corresponde a este modelo: {kind} {sorted(names)[0]} "
            f"({len(missing)} faltan, {len(surplus)} sobran)"
        )
    for name, tensor in own.items():
        found = other[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise CheckpointError(
                f"{where} no corresponde a este modelo: {name} es {tuple(found.shape)} "
                f"{found.dtype} y debe ser {tuple(tensor.shape)} {tensor.dtype}"
            )
