"""Lo imposible en una tarjeta se rechaza con un remedio que, aplicado, de verdad vale."""

import re
from pathlib import Path
from typing import Any

import pytest

from enlace.backends import DeviceDescription
from enlace.cards import profile_card
from enlace.config.schema import HardwareConfig
from enlace.config.yaml_io import read_yaml
from enlace.devices.checks import check_profile
from enlace.devices.profiles import PROFILES
from enlace.errors import HardwareError
from tests.support import make_config

LAYERS = Path(__file__).parents[2] / "configs" / "hardware"
MODEL = make_config({"model.d_model": 512, "model.n_head": 8, "model.n_kv_head": 2}).model
IMPOSSIBLE: list[dict[str, Any]] = [
    {"dtype": "bf16"},
    {"dtype": "fp16"},
    {"sdpa_backend": "flash"},
    {"sdpa_backend": "cudnn"},
    {"sdpa_backend": "math"},
    {"memory_gib": 500.0},
    {"dtype": "bf16", "sdpa_backend": "flash", "memory_gib": 500.0},
]


def layer(profile: str) -> dict[str, Any]:
    values: dict[str, Any] = read_yaml(LAYERS / f"{profile}.yaml")["hardware"]
    return values


def described(profile: str) -> DeviceDescription:
    card = profile_card(profile)
    assert card is not None
    return DeviceDescription("cuda", card.name, card.capability, card.memory_bytes)


@pytest.mark.parametrize("changes", IMPOSSIBLE, ids=str)
@pytest.mark.parametrize("profile", PROFILES)
def test_seguir_los_remedios_lleva_a_un_perfil_que_vale(
    profile: str, changes: dict[str, Any]
) -> None:
    values, card = layer(profile) | changes, described(profile)
    for _ in range(len(changes) + 1):
        refusal = refused(card, values)
        if refusal is None:
            return
        found = re.search(r"pon hardware\.(\w+): ([\w.]+)$", refusal)
        assert found, f"sin un remedio de un solo valor: {refusal}"
        key, value = found.groups()
        assert str(values[key]) != value
        values[key] = float(value) if key == "memory_gib" else value
    pytest.fail(f"los remedios no acaban: {values}")


def refused(card: DeviceDescription, values: dict[str, Any]) -> str | None:
    try:
        check_profile(card, HardwareConfig.model_validate(values), MODEL)
    except HardwareError as error:
        return str(error)
    return None


@pytest.mark.parametrize("profile", PROFILES)
def test_el_rechazo_no_dice_que_la_tarjeta_este_en_esta_maquina(profile: str) -> None:
    values = layer(profile) | {"sdpa_backend": "math"}
    message = refused(described(profile), values)
    # La misma frase la lee quien estima en un portátil para otra tarjeta.
    assert message is not None
    assert "esta máquina" not in message
    assert str(described(profile)) in message
