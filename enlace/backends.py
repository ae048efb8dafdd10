"""El perfil de hardware frente a la máquina real: qué dispositivo, qué precisión, qué atención.

Las decisiones son funciones puras sobre una `DeviceDescription`, así que una tarjeta que no está
en la máquina se prueba igual que la que está. `open_device` es la única que toca torch: describe
el dispositivo, decide, fija los modos de precisión y devuelve un `Backend`.
"""

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from enlace.config.schema import HardwareConfig
from enlace.errors import HardwareError

AMPERE = (8, 0)
"""Primera capacidad de cálculo con bf16 en los núcleos tensoriales y con FlashAttention."""

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_KERNELS = {
    "math": SDPBackend.MATH,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@dataclass(frozen=True)
class DeviceDescription:
    """Lo que hay que saber de un dispositivo para decidir; `capability` es None en CPU."""

    kind: str
    name: str
    capability: tuple[int, int] | None
    memory_bytes: int


@dataclass(frozen=True)
class Backend:
    """Un dispositivo abierto, con sus decisiones ya tomadas."""

    device: torch.device
    dtype: torch.dtype
    sdpa_backend: str
    expand_kv: bool
    threads: int
    description: DeviceDescription

    def autocast(self) -> AbstractContextManager[object]:
        """Contexto de precisión mixta para el paso hacia delante y la pérdida; nada en fp32."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def sdpa(self) -> AbstractContextManager[object]:
        """Contexto que deja a la atención solo el núcleo elegido.

        En CUDA nunca entra MATH: si el núcleo elegido no sirve, la llamada falla en vez de
        materializar en silencio matrices T×T (unas 70 veces más memoria). En CPU `flash` sí puede
        recurrir a MATH, que allí es el único núcleo con dropout.
        """
        allowed = [_KERNELS[self.sdpa_backend]]
        if self.device.type == "cpu" and self.sdpa_backend == "flash":
            allowed.append(SDPBackend.MATH)
        return sdpa_kernel(allowed)

    def synchronize(self) -> None:
        """Espera a que el dispositivo termine lo pendiente (en CPU no hay nada que esperar)."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def native_bf16(description: DeviceDescription) -> bool:
    """Si la GPU calcula bf16 en sus núcleos tensoriales (capacidad 8.0 o mayor).

    `torch.cuda.is_bf16_supported()` dice que sí también en Turing, donde bf16 se emula y es más
    lento que fp32. En CPU la respuesta es no: bf16 allí es correcto pero se admite solo por
    exactitud, no por velocidad.
    """
    return description.capability is not None and description.capability >= AMPERE


def select_dtype(description: DeviceDescription, hardware: HardwareConfig) -> torch.dtype:
    """La precisión del perfil, si el dispositivo la calcula de forma nativa.

    Raises:
        HardwareError: bf16 en una GPU anterior a Ampere.
    """
    is_gpu = description.kind == "cuda"
    if hardware.dtype == "bf16" and is_gpu and not native_bf16(description):
        raise HardwareError(
            f"hardware.dtype=bf16 del perfil {hardware.name!r} no es nativo en {_card(description)}"
            "; usa un perfil fp16 como rtx2060 (por ejemplo, make params RUN=pretrain-2060)"
        )
    return _DTYPES[hardware.dtype]


def select_sdpa(description: DeviceDescription, hardware: HardwareConfig) -> str:
    """El núcleo de atención del perfil, si el dispositivo lo tiene.

    Los límites son los de torch 2.13: flash y cuDNN desde sm_80 y solo en 16 bits; mem_efficient
    en todas; `math` no se acepta en CUDA porque guarda T×T por capa.

    Raises:
        HardwareError: el núcleo no existe para esa tarjeta o esa precisión.
    """
    wanted = hardware.sdpa_backend
    if description.capability is None:
        return wanted
    where = f"hardware.sdpa_backend={wanted} del perfil {hardware.name!r}"
    remedy = "pon hardware.sdpa_backend: mem_efficient"
    if wanted == "math":
        raise HardwareError(f"{where} guarda matrices T×T en {_card(description)}; {remedy}")
    if wanted in ("flash", "cudnn"):
        if description.capability < AMPERE:
            raise HardwareError(
                f"{where} necesita capacidad 8.0 o mayor y esta máquina tiene "
                f"{_card(description)}; {remedy}"
            )
        if hardware.dtype == "fp32":
            raise HardwareError(f"{where} solo calcula en 16 bits y hardware.dtype=fp32; {remedy}")
    return wanted


def expands_kv(sdpa_backend: str) -> bool:
    """Si con GQA hay que repetir a mano las cabezas de clave y valor.

    En torch 2.13 mem_efficient no acepta `enable_gqa`: la llamada caería en silencio a MATH. En
    CPU no se nota, por eso se decide por el nombre del núcleo y no se espera a que falle.
    """
    return sdpa_backend == "mem_efficient"


def describe_device(kind: str) -> DeviceDescription:
    """Describe la CPU o la GPU actual de esta máquina.

    Raises:
        HardwareError: se pide una GPU y torch no ve ninguna.
    """
    if kind == "cpu":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return DeviceDescription("cpu", _cpu_name(), None, memory)
    if not torch.cuda.is_available():
        cause = (
            "este torch es la versión sin CUDA"
            if torch.version.cuda is None
            else "torch no encuentra ninguna (¿controlador de NVIDIA?)"
        )
        raise HardwareError(
            f"hardware.device=cuda necesita una GPU NVIDIA y {cause}; para entrenar en CPU "
            "usa make params RUN=demo (o RUN=smoke)"
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = (properties.major, properties.minor)
    return DeviceDescription("cuda", properties.name, capability, properties.total_memory)


def decide(hardware: HardwareConfig, description: DeviceDescription, threads: int) -> Backend:
    """Contrasta un perfil con un dispositivo y reúne las decisiones; no toca torch.

    Raises:
        HardwareError: el perfil no corresponde al dispositivo.
    """
    dtype = select_dtype(description, hardware)
    sdpa_backend = select_sdpa(description, hardware)
    device = torch.device(description.kind)
    expand_kv = expands_kv(sdpa_backend)
    return Backend(device, dtype, sdpa_backend, expand_kv, threads, description)


def open_device(hardware: HardwareConfig) -> Backend:
    """Abre el dispositivo del perfil: decide, fija hilos y precisión, y lo devuelve.

    Raises:
        HardwareError: el perfil no corresponde a la máquina, con el remedio.
    """
    description = describe_device(hardware.device)
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    backend = decide(hardware, description, torch.get_num_threads())
    _set_precision()
    return backend


def _set_precision() -> None:
    """Acumula siempre en fp32: un perfil cambia la velocidad, no las cuentas.

    Con la reducción en fp16 (que torch activa por defecto) las sumas parciales de un producto de
    matrices pueden desbordar en 65504; TF32 recorta la mantisa a 10 bits.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_accumulation = False


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _card(description: DeviceDescription) -> str:
    if description.capability is None:
        return description.name
    major, minor = description.capability
    return f"{description.name} (capacidad {major}.{minor})"
