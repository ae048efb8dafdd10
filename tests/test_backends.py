"""El perfil frente a la máquina: las tarjetas se prueban por su descripción, sin tenerlas."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace import backends
from enlace.backends import (
    Backend,
    DeviceDescription,
    confirm_sdpa,
    decide,
    describe_device,
    describe_properties,
    expands_kv,
    native_bf16,
    open_device,
)
from enlace.config.schema import HardwareConfig
from enlace.devices.description import described_card
from enlace.errors import HardwareError
from enlace.model.transformer import Transformer
from tests.support import make_config

GIB = 1 << 30
CPU = DeviceDescription("cpu", "CPU de prueba", None, 8 * GIB)
RTX_2060 = DeviceDescription("cuda", "NVIDIA GeForce RTX 2060", (7, 5), 6 * GIB)
RTX_3060 = DeviceDescription("cuda", "NVIDIA GeForce RTX 3060", (8, 6), 12 * GIB)
RTX_5090 = DeviceDescription("cuda", "NVIDIA GeForce RTX 5090", (12, 0), 32 * GIB)


def profile(
    device: str = "cuda", dtype: str = "fp16", sdpa: str = "mem_efficient"
) -> HardwareConfig:
    return make_config(
        {"hardware.device": device, "hardware.dtype": dtype, "hardware.sdpa_backend": sdpa}
    ).hardware


@pytest.mark.parametrize(
    ("card", "native"), [(CPU, False), (RTX_2060, False), (RTX_3060, True), (RTX_5090, True)]
)
def test_bf16_nativo_es_cuestion_de_capacidad(card: DeviceDescription, native: bool) -> None:
    assert native_bf16(card) is native


def test_bf16_en_turing_se_rechaza_con_remedio() -> None:
    with pytest.raises(HardwareError, match=r"bf16.*RTX 2060.*7\.5.*hardware=rtx2060"):
        decide(profile(dtype="bf16"), RTX_2060, 1)


@pytest.mark.parametrize(
    ("card", "dtype", "expected"),
    [
        (RTX_2060, "fp16", torch.float16),
        (RTX_2060, "fp32", torch.float32),
        (RTX_5090, "bf16", torch.bfloat16),
    ],
)
def test_cada_tarjeta_acepta_sus_precisiones(
    card: DeviceDescription, dtype: str, expected: torch.dtype
) -> None:
    assert decide(profile(dtype=dtype), card, 1).dtype == expected


@pytest.mark.parametrize("kernel", ["flash", "cudnn"])
def test_flash_y_cudnn_necesitan_ampere(kernel: str) -> None:
    with pytest.raises(HardwareError, match=r"8\.0.*mem_efficient"):
        decide(profile(sdpa=kernel), RTX_2060, 1)
    assert decide(profile(sdpa=kernel), RTX_3060, 1).sdpa_backend == kernel


@pytest.mark.parametrize("kernel", ["flash", "cudnn"])
def test_flash_y_cudnn_no_calculan_en_fp32(kernel: str) -> None:
    with pytest.raises(HardwareError, match="16 bits"):
        decide(profile(dtype="fp32", sdpa=kernel), RTX_5090, 1)


@pytest.mark.parametrize("card", [RTX_2060, RTX_5090])
def test_math_no_entra_en_gpu(card: DeviceDescription) -> None:
    with pytest.raises(HardwareError, match="T×T"):
        decide(profile(sdpa="math"), card, 1)


def test_solo_mem_efficient_repite_cabezas_y_el_modelo_hace_lo_mismo() -> None:
    expected = {"math": False, "flash": False, "mem_efficient": True, "cudnn": False}
    assert {name: expands_kv(name) for name in expected} == expected
    for name, expands in expected.items():
        block: Any = Transformer(make_config().model, name).blocks[0]
        assert block.attn.expand_kv is expands, name


def test_turing_repite_cabezas_y_nunca_ve_math() -> None:
    backend = decide(profile(), RTX_2060, threads=2)
    assert backend.expand_kv
    with backend.sdpa():
        assert not torch.backends.cuda.math_sdp_enabled()
        assert not torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()


def test_ampere_usa_flash_y_nunca_ve_math() -> None:
    backend = decide(profile(dtype="bf16", sdpa="flash"), RTX_5090, threads=2)
    assert not backend.expand_kv
    with backend.sdpa():
        assert not torch.backends.cuda.math_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()


def test_la_atencion_de_cpu_funciona_con_dropout() -> None:
    backend = open_device(profile("cpu", "fp32", "flash"))
    query = torch.randn(1, 2, 4, 8)
    with backend.sdpa():
        output = F.scaled_dot_product_attention(query, query, query, dropout_p=0.5)
    assert output.shape == query.shape


def test_al_salir_del_contexto_vuelven_los_nucleos_de_antes() -> None:
    before = torch.backends.cuda.flash_sdp_enabled()
    with decide(profile(), RTX_2060, threads=2).sdpa():
        pass
    assert torch.backends.cuda.flash_sdp_enabled() == before
    assert torch.backends.cuda.math_sdp_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="esta máquina sí tiene GPU")
def test_un_perfil_de_gpu_en_una_maquina_sin_gpu_dice_que_usar() -> None:
    with pytest.raises(HardwareError, match=r"hardware\.device=cuda.*RUN=demo"):
        open_device(profile())


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_autocast_pone_la_precision_del_perfil(dtype: str, expected: torch.dtype) -> None:
    backend = open_device(profile("cpu", dtype, "flash"))
    matrix = torch.ones(2, 2)
    with backend.autocast():
        assert (matrix @ matrix).dtype == expected


def test_fp32_no_activa_autocast() -> None:
    with open_device(profile("cpu", "fp32", "flash")).autocast():
        assert not torch.is_autocast_enabled("cpu")


def test_abrir_el_dispositivo_fija_la_acumulacion_en_fp32() -> None:
    matmul = torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("high")
    matmul.allow_fp16_reduced_precision_reduction = True
    open_device(profile("cpu", "fp32", "flash"))
    assert torch.get_float32_matmul_precision() == "highest"
    assert not matmul.allow_fp16_reduced_precision_reduction
    assert not matmul.allow_bf16_reduced_precision_reduction
    assert not matmul.allow_fp16_accumulation


def test_los_hilos_son_los_del_perfil_o_los_de_torch() -> None:
    before = torch.get_num_threads()
    try:
        assert open_device(make_config().hardware).threads == before
        assert open_device(make_config({"hardware.threads": 1}).hardware).threads == 1
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_la_cpu_se_describe_con_memoria_y_sin_capacidad() -> None:
    description = describe_device("cpu")
    assert description.capability is None
    assert description.memory_bytes > 0
    assert description.name


def test_el_backend_no_se_puede_modificar() -> None:
    backend: Backend = decide(profile("cpu", "fp32", "math"), CPU, threads=1)
    with pytest.raises(AttributeError):
        backend.dtype = torch.float16  # type: ignore[misc]


# torch contesta por sí mismo


def test_el_nucleo_elegido_es_el_que_torch_usaria() -> None:
    model = make_config().model
    for kernel in ("flash", "math"):
        confirm_sdpa(open_device(profile("cpu", "fp32", kernel)), model)


def test_si_torch_usaria_otro_nucleo_se_dice_cual_y_por_que() -> None:
    asked: dict[str, Any] = {}

    def choose(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> int:
        asked.update(options, heads=(query.shape[1], key.shape[1]))
        return 0

    backend = replace(decide(profile(), RTX_2060, 1), device=torch.device("cpu"))
    with pytest.raises(
        HardwareError,
        match=r"mem_efficient no es el núcleo.*2060.*\(math\): no hay GQA; usa el perfil",
    ):
        confirm_sdpa(backend, make_config().model, "none", choose, lambda *_: "no hay GQA")
    # mem_efficient recibe las cabezas ya repetidas; flash, agrupadas.
    assert (asked["heads"], asked["enable_gqa"], asked["is_causal"]) == ((4, 4), False, True)
    flash = replace(decide(profile(dtype="bf16", sdpa="flash"), RTX_5090, 1), device=backend.device)
    with pytest.raises(HardwareError, match="flash no es el núcleo"):
        confirm_sdpa(flash, make_config().model, "none", choose, lambda *_: "")
    assert (asked["heads"], asked["enable_gqa"]) == ((4, 2), True)


def test_los_motivos_de_torch_se_recogen_sin_avisos_sueltos() -> None:
    # Este torch puede no llevar CUDA: entonces no da motivos, pero la pregunta no falla.
    backend = replace(decide(profile(), RTX_2060, 1), device=torch.device("cpu"))
    with pytest.raises(HardwareError, match=r"\(math\): \S+"):
        confirm_sdpa(backend, None, "none", lambda *_, **__: 0)


def test_abrir_una_gpu_pone_el_limite_de_memoria_y_pregunta_a_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    wsl = replace(RTX_2060, platform="wsl", free_bytes=5 * GIB)
    monkeypatch.setattr(backends, "describe_device", lambda kind: wsl)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", calls.append)
    monkeypatch.setattr(backends, "confirm_sdpa", lambda *arguments: calls.append(arguments))
    config = make_config({"hardware.device": "cuda", "hardware.sdpa_backend": "mem_efficient"})
    backend = open_device(config.hardware, config.model, "block")
    assert calls == [backend.memory_fraction, (backend, config.model, "block")]
    monkeypatch.setattr(backends, "describe_device", lambda kind: RTX_2060)
    calls.clear()
    backend = open_device(config.hardware, config.model)
    assert calls == [(backend, config.model, "none")]


def test_la_descripcion_sale_de_las_propiedades_de_torch() -> None:
    properties = SimpleNamespace(
        name="NVIDIA GeForce RTX 2060",
        major=7,
        minor=5,
        total_memory=6 * GIB,
        multi_processor_count=30,
        clock_rate=1_680_000,
        memory_clock_rate=7_001_000,
        memory_bus_width=192,
    )
    found = describe_properties(properties, 5 * GIB)
    assert (found.capability, found.free_bytes, found.sm_count) == ((7, 5), 5 * GIB, 30)
    card = described_card(found)
    assert card is not None
    assert card.peak_flops("fp16") / 1e12 == pytest.approx(25.8, rel=0.005)
    assert card.bandwidth / 1e9 == pytest.approx(336, rel=0.001)
    assert card.watts == 160


@pytest.mark.parametrize(
    ("release", "expected"),
    [("5.15.167.4-microsoft-standard-WSL2", "wsl"), ("6.8.0-45-generic", "linux")],
)
def test_wsl_se_reconoce_por_el_nucleo(
    release: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    assert describe_device("cpu").platform == expected


class _Recorded:
    """Un tensor que apunta cómo lo copian."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def pin_memory(self) -> "_Recorded":
        self.calls.append("pin")
        return self

    def to(self, device: torch.device, non_blocking: bool = False) -> "_Recorded":
        self.calls.append((device.type, non_blocking))
        return self


@pytest.mark.parametrize(
    ("platform", "calls"), [("linux", ["pin", ("cuda", True)]), ("wsl", [("cuda", False)])]
)
def test_los_lotes_se_copian_sin_esperar_donde_la_memoria_se_puede_fijar(
    platform: Any, calls: list[Any]
) -> None:
    description = replace(RTX_2060, platform=platform, free_bytes=5 * GIB)
    tensor: Any = _Recorded()
    decide(profile(), description, threads=1).place(tensor)
    assert tensor.calls == calls


def test_en_cpu_los_lotes_no_se_copian() -> None:
    tensor = torch.arange(3)
    assert decide(make_config().hardware, CPU, threads=1).place(tensor) is tensor
