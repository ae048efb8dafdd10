"""Las reglas del perfil frente al dispositivo, con la descripción de cada tarjeta y sin tenerla."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enlace.cards import CARDS, GIB
from enlace.config.schema import HardwareConfig
from enlace.config.yaml_io import read_yaml
from enlace.devices.attention import expands_kv, sdpa_refusals
from enlace.devices.checks import (
    check_architecture,
    check_profile,
    device_warnings,
    explain_missing_gpu,
    memory_fraction,
    pins_memory,
)
from enlace.devices.description import DeviceDescription, described_card
from enlace.devices.profiles import PROFILES, suggest_profile
from enlace.errors import HardwareError
from tests.support import make_config, tiny_values

LAYERS = Path(__file__).parents[2] / "configs" / "hardware"
CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")
CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def card(name: str, capability: tuple[int, int], gib: float, **more: Any) -> DeviceDescription:
    return DeviceDescription("cuda", name, capability, int(gib * GIB), arch_list=CU130, **more)


CPU = DeviceDescription("cpu", "CPU de prueba", None, 16 * GIB)
DEVICES = {
    "rtx2060": card("NVIDIA GeForce RTX 2060", (7, 5), 5.8),
    "rtx2060-super": card("NVIDIA GeForce RTX 2060 SUPER", (7, 5), 7.8),
    "rtx3060": card("NVIDIA GeForce RTX 3060", (8, 6), 11.6),
    "rtx4060": card("NVIDIA GeForce RTX 4060", (8, 9), 7.6),
    "rtx4090": card("NVIDIA GeForce RTX 4090", (8, 9), 23.5),
    "rtx5090": card("NVIDIA GeForce RTX 5090", (12, 0), 31.4),
    "t4": card("Tesla T4", (7, 5), 14.6),
    "a100": card("NVIDIA A100-SXM4-40GB", (8, 0), 39.4),
    "h100": card("NVIDIA H100 80GB HBM3", (9, 0), 79.1),
    "gtx1660": card("NVIDIA GeForce GTX 1660", (7, 5), 5.8),
    "rtx3060-laptop": card("NVIDIA GeForce RTX 3060 Laptop GPU", (8, 6), 5.8),
}


def layer(name: str, **changes: Any) -> HardwareConfig:
    return HardwareConfig.model_validate(read_yaml(LAYERS / f"{name}.yaml")["hardware"] | changes)


# Qué perfil usar


@pytest.mark.parametrize("profile", DEVICES)
def test_cada_tarjeta_tiene_su_perfil_y_lo_cumple(profile: str) -> None:
    description = DEVICES[profile]
    assert suggest_profile(description) == profile
    check_profile(description, layer(profile), make_config().model)


@pytest.mark.parametrize(
    ("description", "profile"),
    [
        (CPU, "cpu"),
        (card("NVIDIA GeForce RTX 2060", (7, 5), 11.7), "rtx2060-super"),
        (card("NVIDIA GeForce RTX 2080 Ti", (7, 5), 10.7), "rtx2060-super"),
        (card("NVIDIA GeForce GTX 1650", (7, 5), 3.8), "cpu"),
        (card("NVIDIA GeForce GTX 1080", (6, 1), 8), "cpu"),
        (card("NVIDIA GeForce RTX 3090", (8, 6), 23.6), "rtx4090"),
        (card("NVIDIA GeForce RTX 4090 Laptop GPU", (8, 9), 15.6), "rtx3060"),
        (card("NVIDIA GeForce RTX 3050", (8, 6), 3.9), "cpu"),
        (card("NVIDIA A100-SXM4-80GB", (8, 0), 79.2), "h100"),
        (card("NVIDIA H200", (9, 0), 139.8), "h100"),
        (card("NVIDIA RTX A6000", (8, 6), 47.4), "a100"),
    ],
    ids=str,
)
def test_una_tarjeta_sin_perfil_propio_usa_el_que_le_cabe(
    description: DeviceDescription, profile: str
) -> None:
    assert suggest_profile(description) == profile


@pytest.mark.parametrize("wrong", sorted(PROFILES))
@pytest.mark.parametrize("real", DEVICES)
def test_un_perfil_ajeno_se_acepta_o_nombra_el_que_sirve(real: str, wrong: str) -> None:
    description, hardware = DEVICES[real], layer(wrong)
    # La memoria decide entre las tarjetas de una generación; la precisión, entre generaciones.
    fits = description.memory_bytes >= 0.9 * hardware.memory_gib * GIB
    is_ampere = description.capability is not None and description.capability >= (8, 0)
    computes = {
        "fp32": True,
        "fp16": description.has_tensor_cores,
        "bf16": is_ampere,
    }[hardware.dtype]
    if fits and computes:
        check_profile(description, hardware)
        return
    with pytest.raises(HardwareError) as caught:
        check_profile(description, hardware)
    assert f"usa el perfil {real}:" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_la_tabla_de_perfiles_es_la_de_los_ficheros() -> None:
    files = {path.stem: layer(path.stem) for path in LAYERS.glob("*.yaml")}
    assert set(files) == {*PROFILES, "cpu"}
    for name, (capability, gib) in PROFILES.items():
        hardware = files[name]
        assert (hardware.name, hardware.memory_gib) == (name, gib)
        assert (hardware.dtype == "bf16") == (capability >= (8, 0))
        assert hardware.activation_checkpointing == "none"
    assert {known.profile for known in CARDS if known.profile} == set(PROFILES)


def test_los_perfiles_comparten_los_umbrales_del_preflight() -> None:
    files = [layer(path.stem) for path in LAYERS.glob("*.yaml") if path.stem != "cpu"]
    # Los pasos no son un umbral: las tarjetas lentas miden menos para no pasar de unos minutos.
    assert len({hardware.preflight.model_copy(update={"steps": 1}) for hardware in files}) == 1


# Qué se rechaza


@pytest.mark.parametrize(
    ("device", "changes", "pattern"),
    [
        ("rtx2060", {"dtype": "bf16"}, r"bf16.*no es nativo en NVIDIA GeForce RTX 2060.*7\.5"),
        ("rtx2060", {"sdpa_backend": "flash"}, r"flash.*8\.0 o mayor.*pon .*mem_efficient"),
        ("rtx2060", {"sdpa_backend": "cudnn"}, r"cudnn.*8\.0 o mayor"),
        ("rtx2060", {"sdpa_backend": "math"}, r"math.*T×T"),
        ("gtx1660", {"dtype": "fp16"}, r"fp16.*núcleos tensoriales.*pon .*dtype: fp32"),
        ("t4", {"memory_gib": 24.0}, r"24 GiB.*Tesla T4.*14,6 GiB.*pon .*memory_gib: 16"),
        ("rtx5090", {"dtype": "fp32"}, r"flash.*16 bits.*pon .*mem_efficient"),
    ],
)
def test_lo_imposible_se_rechaza_con_su_motivo(
    device: str, changes: dict[str, Any], pattern: str
) -> None:
    with pytest.raises(HardwareError, match=pattern):
        check_profile(DEVICES[device], layer(device, **changes))


def test_el_perfil_de_cpu_vale_en_cualquier_maquina() -> None:
    check_profile(CPU, layer("cpu"))
    check_profile(replace(CPU, memory_bytes=GIB), layer("cpu"))


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((7, 5), CU130, True),
        ((8, 9), CU130, True),
        ((12, 0), CU130, True),
        ((12, 1), CU130, True),
        ((12, 0), CU126, False),
        ((6, 1), CU130, False),
        ((6, 1), CU126, True),
        ((7, 0), CU130, False),
        ((7, 2), CU126, True),
        ((10, 3), ("sm_100a",), False),
        ((10, 0), ("sm_100a",), True),
        ((9, 0), ("compute_80",), True),
        ((7, 5), ("compute_80", "sm_86"), False),
        ((8, 0), ("sm_86",), False),
        ((8, 0), (), True),
    ],
)
def test_compatibilidad_binaria(
    capability: tuple[int, int], archs: tuple[str, ...], runs: bool
) -> None:
    description = replace(card("Tarjeta", capability, 8), arch_list=archs, cuda="13.0")
    if runs:
        check_architecture(description)
        return
    remedy = "cu126" if capability < (7, 5) else "cu130"
    with pytest.raises(HardwareError, match=rf"CUDA 13\.0.*no trae código.*{remedy}"):
        check_architecture(description)


@pytest.mark.parametrize(
    ("cuda", "driver", "platform", "pattern"),
    [
        (None, None, "linux", "sin CUDA.*cu130"),
        ("13.0", None, "linux", "no hay controlador de NVIDIA; instálalo$"),
        ("13.0", None, "wsl", "en Windows, no dentro de WSL"),
        ("13.0", (12, 4), "linux", r"llega a CUDA 12\.4 y este torch usa 13\.0.*cu126"),
        ("12.6", (12, 4), "linux", "CUDA_VISIBLE_DEVICES"),
        ("13.0", (13, 1), "linux", "nvidia-smi"),
    ],
)
def test_por_que_no_se_ve_la_gpu(
    cuda: str | None, driver: tuple[int, int] | None, platform: str, pattern: str
) -> None:
    with pytest.raises(AssertionError, match=pattern):
        raise AssertionError(explain_missing_gpu(cuda, driver, platform))


# Atención


def _model(width: int) -> Any:
    values = tiny_values({"model.d_model": 4 * width})
    return type(make_config().model).model_validate(values["model"])


@pytest.mark.parametrize(
    ("device", "dtype", "width", "refused"),
    [
        ("rtx2060", "fp16", 64, {"math", "flash", "cudnn"}),
        ("rtx2060", "fp16", 36, {"math", "flash", "cudnn", "mem_efficient"}),
        ("rtx2060", "fp32", 36, {"math", "flash", "cudnn"}),
        ("rtx2060", "fp32", 34, {"math", "flash", "cudnn", "mem_efficient"}),
        ("rtx2060", "bf16", 64, {"math", "flash", "cudnn", "mem_efficient"}),
        ("rtx5090", "bf16", 64, {"math"}),
        ("rtx5090", "bf16", 36, {"math", "mem_efficient", "cudnn"}),
        ("rtx5090", "bf16", 136, {"math", "cudnn"}),
        ("rtx5090", "bf16", 200, {"math", "cudnn", "flash"}),
        ("a100", "bf16", 200, {"math", "cudnn"}),
        ("a100", "bf16", 264, {"math", "cudnn", "flash"}),
        ("rtx5090", "fp32", 64, {"math", "cudnn", "flash"}),
    ],
)
def test_que_nucleos_no_pueden_correr(
    device: str, dtype: str, width: int, refused: set[str]
) -> None:
    found = sdpa_refusals(DEVICES[device], layer(device, dtype=dtype), _model(width))
    assert set(found) == refused
    assert all(found.values())


def test_unas_cabezas_que_ningun_nucleo_admite_piden_otra_forma() -> None:
    with pytest.raises(HardwareError, match=r"múltiplo de 8.*miden 36.*model\.n_head"):
        check_profile(DEVICES["rtx2060"], layer("rtx2060"), _model(36))
    assert set(sdpa_refusals(CPU, layer("cpu"))) == {"mem_efficient", "cudnn"}


def test_solo_mem_efficient_repite_claves() -> None:
    assert [k for k in ("math", "flash", "mem_efficient", "cudnn") if expands_kv(k)] == [
        "mem_efficient"
    ]


# Memoria y avisos


def test_en_wsl_y_windows_se_limita_la_memoria() -> None:
    hardware = layer("rtx2060")
    description = replace(DEVICES["rtx2060"], memory_bytes=6 * GIB, free_bytes=5 * GIB)
    assert memory_fraction(description, hardware) is None
    assert pins_memory(description)
    for platform in ("wsl", "windows"):
        limited = replace(description, platform=platform)
        # El margen del 5 % de 6 GiB pasa de los 256 MiB que quedan libres como poco.
        assert memory_fraction(limited, hardware) == pytest.approx((5 - 0.3) / 6)
        assert not pins_memory(limited)
        assert "desbordar" in device_warnings(limited, hardware)[0]
    small = layer("rtx2060", memory_margin=0.0)
    assert memory_fraction(replace(description, platform="wsl"), small) == pytest.approx(4.75 / 6)
    full = replace(description, platform="wsl", free_bytes=GIB // 5)
    with pytest.raises(HardwareError, match=r"0,2 GiB libres de 6,0 GiB"):
        memory_fraction(full, hardware)
    assert memory_fraction(replace(CPU, platform="wsl"), layer("cpu")) is None


def test_los_avisos_no_impiden_y_son_los_justos() -> None:
    free = replace(DEVICES["rtx2060"], free_bytes=int(5.5 * GIB))
    assert device_warnings(free, layer("rtx2060")) == ()
    (busy,) = device_warnings(replace(free, free_bytes=2 * GIB), layer("rtx2060"))
    assert "2,0 GiB de 5,8 GiB" in busy
    (compiled,) = device_warnings(free, layer("rtx2060", compile=True))
    assert "hardware.compile" in compiled
    (laptop,) = device_warnings(replace(free, sm_count=30, clock_khz=1_200_000), layer("rtx2060"))
    assert "portátil" in laptop
    assert device_warnings(CPU, layer("cpu")) == ()


def test_una_tarjeta_se_describe_con_sus_propias_cifras() -> None:
    unknown = replace(
        card("NVIDIA RTX PRO 6000", (12, 0), 95),
        sm_count=188,
        clock_khz=2_617_000,
        memory_clock_khz=14_001_000,
        memory_bus_bits=512,
    )
    found = described_card(unknown)
    assert found is not None
    assert found.peak_flops("bf16") / 1e12 == pytest.approx(503.8, rel=0.005)
    assert found.bandwidth / 1e9 == pytest.approx(1792, rel=0.001)
    assert found.watts == 0
    table = described_card(DEVICES["rtx4090"])
    assert table is not None
    assert table.watts == 450
    assert described_card(card("NVIDIA RTX PRO 6000", (12, 0), 95)) is None
    assert described_card(CPU) is None
