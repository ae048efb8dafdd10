"""Qué perfil de `configs/hardware/` sirve para cada dispositivo."""

from collections.abc import Mapping

from enlace.cards import Capability, largest_fitting
from enlace.config.schema import HardwareConfig
from enlace.devices.description import AMPERE, DeviceDescription, known_card

_TENSOR_CORES = (7, 0)
PROFILES: Mapping[str, tuple[Capability, float]] = {
    "gtx1660": ((7, 5), 6.0),
    "rtx2060": (_TENSOR_CORES, 6.0),
    "rtx2060-super": (_TENSOR_CORES, 8.0),
    "t4": (_TENSOR_CORES, 16.0),
    "rtx3060-laptop": (AMPERE, 6.0),
    "rtx4060": (AMPERE, 8.0),
    "rtx3060": (AMPERE, 12.0),
    "rtx4090": (AMPERE, 24.0),
    "rtx5090": (AMPERE, 32.0),
    "a100": (AMPERE, 40.0),
    "h100": (AMPERE, 80.0),
}
"""Las capas de GPU de `configs/hardware/`: capacidad mínima y memoria, en GiB."""
NO_TENSOR_CORES = "gtx1660"


def suggest_profile(description: DeviceDescription) -> str:
    """El perfil de `configs/hardware/` que sirve para ese dispositivo.

    El de la propia tarjeta si lo hay; si no, el de su generación con más memoria de los que le
    caben; y `cpu` si no le sirve ninguno.
    """
    capability = description.capability
    if capability is None or capability < _TENSOR_CORES:
        return "cpu"
    if not description.has_tensor_cores:
        fits = largest_fitting(
            [(NO_TENSOR_CORES, PROFILES[NO_TENSOR_CORES][1])], description.memory_bytes
        )
        return fits or "cpu"
    card = known_card(description)
    if card is not None and card.profile is not None:
        return card.profile
    generation = AMPERE if capability >= AMPERE else _TENSOR_CORES
    sizes = [(name, gib) for name, (minimum, gib) in PROFILES.items() if minimum == generation]
    return largest_fitting(sizes, description.memory_bytes) or "cpu"


def use_profile(description: DeviceDescription) -> str:
    """El remedio: qué perfil usar y cómo."""
    profile = suggest_profile(description)
    return f'usa el perfil {profile}: make params RUN=… SET="hardware={profile}"'


def remedy(
    description: DeviceDescription, hardware: HardwareConfig, key: str, value: object
) -> str:
    """Lo mismo, salvo que el perfil ya sea el suyo, editado: entonces, qué valor de `key` sirve."""
    if suggest_profile(description) == hardware.name:
        return f"pon hardware.{key}: {value}"
    return use_profile(description)
