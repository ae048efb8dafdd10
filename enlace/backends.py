"""El dispositivo abierto: qué máquina hay, qué se decide para ella y con qué modos se calcula.

Las reglas son puras y están en `enlace.devices`; este es el único módulo que pregunta a torch por
la máquina. `open_device` la describe, decide, pone los límites y modos y devuelve un `Backend`.
"""

import os
import platform
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from enlace.config.documents import DocumentMask
from enlace.config.schema import HardwareConfig, ModelConfig
from enlace.devices.attention import expands_kv
from enlace.devices.checks import (
    check_profile,
    device_warnings,
    explain_missing_gpu,
    memory_fraction,
    pins_memory,
)
from enlace.devices.description import DeviceDescription, native_bf16
from enlace.devices.host_memory import keep_freed_memory
from enlace.devices.profiles import use_profile
from enlace.errors import HardwareError

__all__ = [
    "Backend",
    "DeviceDescription",
    "confirm_sdpa",
    "decide",
    "describe_device",
    "expands_kv",
    "native_bf16",
    "open_device",
]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_KERNELS = {
    "math": SDPBackend.MATH,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@dataclass(frozen=True)
class Backend:
    """Un dispositivo abierto, con sus decisiones ya tomadas."""

    device: torch.device
    dtype: torch.dtype
    sdpa_backend: str
    expand_kv: bool
    threads: int
    description: DeviceDescription
    memory_fraction: float | None = None
    """Parte de la memoria que este proceso puede usar, donde el sistema desborda a la RAM."""
    pins_memory: bool = False
    """Si los lotes se copian desde memoria fijada, sin esperar a que la GPU acabe lo que tiene."""
    warnings: tuple[str, ...] = ()
    """Lo que no impide entrenar pero conviene decir, una frase por aviso."""

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

    def place(self, tensor: Tensor) -> Tensor:
        """El tensor, que está en CPU, en el dispositivo.

        Con memoria fijada la copia no detiene a la CPU, que sigue encolando núcleos; torch guarda
        el original hasta que la copia termina.
        """
        if self.pins_memory:
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def synchronize(self) -> None:
        """Espera a que el dispositivo termine lo pendiente (en CPU no hay nada que esperar)."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def describe_device(kind: str) -> DeviceDescription:
    """Describe la CPU o la GPU actual de esta máquina.

    Raises:
        HardwareError: se pide una GPU y torch no ve ninguna, con la causa.
    """
    if kind == "cpu":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return DeviceDescription("cpu", _cpu_name(), None, memory, platform=_platform())
    if not torch.cuda.is_available():
        cause = explain_missing_gpu(torch.version.cuda, _driver_cuda(), _platform())
        raise HardwareError(
            f"hardware.device=cuda necesita una GPU NVIDIA y {cause}; para entrenar en CPU usa "
            "make params RUN=demo (o RUN=smoke)"
        )
    device = torch.cuda.current_device()
    free, _ = torch.cuda.mem_get_info(device)
    return describe_properties(torch.cuda.get_device_properties(device), free)


def describe_properties(properties: Any, free_bytes: int) -> DeviceDescription:
    """La descripción que sale de `torch.cuda.get_device_properties` y de la memoria libre."""
    return DeviceDescription(
        "cuda",
        properties.name,
        (properties.major, properties.minor),
        properties.total_memory,
        free_bytes=free_bytes,
        sm_count=properties.multi_processor_count,
        clock_khz=int(getattr(properties, "clock_rate", 0)),
        memory_clock_khz=int(getattr(properties, "memory_clock_rate", 0)),
        memory_bus_bits=int(getattr(properties, "memory_bus_width", 0)),
        arch_list=tuple(torch.cuda.get_arch_list()),
        cuda=torch.version.cuda,
        driver_cuda=_driver_cuda(),
        platform=_platform(),
    )


def decide(
    hardware: HardwareConfig,
    description: DeviceDescription,
    threads: int,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
) -> Backend:
    """Contrasta un perfil con un dispositivo y reúne las decisiones; no toca la máquina.

    Con `model` se comprueba además que sus cabezas caben en el núcleo de atención.

    Raises:
        HardwareError: el perfil no corresponde al dispositivo; dice cuál usar.
    """
    check_profile(description, hardware, model, document_mask)
    return Backend(
        device=torch.device(description.kind),
        dtype=_DTYPES[hardware.dtype],
        sdpa_backend=hardware.sdpa_backend,
        expand_kv=expands_kv(hardware.sdpa_backend),
        threads=threads,
        description=description,
        memory_fraction=memory_fraction(description, hardware),
        pins_memory=pins_memory(description),
        warnings=device_warnings(description, hardware),
    )


def open_device(
    hardware: HardwareConfig,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
) -> Backend:
    """Abre el dispositivo del perfil: decide, fija hilos, memoria y precisión, y lo devuelve.

    Raises:
        HardwareError: el perfil no corresponde a la máquina, con el remedio.
    """
    description = describe_device(hardware.device)
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    if hardware.host_allocator == "keep":
        keep_freed_memory()
    backend = decide(hardware, description, torch.get_num_threads(), model, document_mask)
    _set_precision()
    if backend.device.type == "cuda":
        if backend.memory_fraction is not None:
            torch.cuda.set_per_process_memory_fraction(backend.memory_fraction)
        confirm_sdpa(backend, model, document_mask)
    return backend


def confirm_sdpa(
    backend: Backend,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
    choose: Callable[..., int] | None = None,
    explain: Callable[[str, Any], str] | None = None,
) -> None:
    """Pregunta a torch qué núcleo de atención usaría con tensores como los del modelo.

    Es la comprobación de las reglas con la tarjeta delante: si torch no eligiera el núcleo del
    perfil, más vale saberlo ahora que a mitad del primer paso.

    Args:
        backend: el dispositivo.
        model: de quién son las cabezas; sin él, dos de 64.
        document_mask: con `block` se pregunta con una máscara como la suya.
        choose: quien elige; `torch._fused_sdp_choice`, salvo en las pruebas.
        explain: por qué no vale un núcleo; lo que avisa torch, salvo en las pruebas.

    Raises:
        HardwareError: torch elige otro, con sus razones.
    """
    heads, kv_heads, width = (
        (2, 2, 64) if model is None else (model.n_head, model.n_kv_head, model.head_dim)
    )
    kv_heads = heads if backend.expand_kv else kv_heads
    query = torch.zeros(1, heads, 16, width, dtype=backend.dtype, device=backend.device)
    key = torch.zeros(1, kv_heads, 16, width, dtype=backend.dtype, device=backend.device)
    query.requires_grad_()
    grouped = kv_heads != heads
    mask = query.new_zeros(1, 1, 16, 16) if document_mask != "none" else None
    with backend.sdpa():
        found = (choose or torch._fused_sdp_choice)(
            query,
            key,
            key,
            attn_mask=mask,
            dropout_p=0.0,
            is_causal=mask is None,
            enable_gqa=grouped,
        )
    members: Any = SDPBackend.__members__
    names = {int(member): name.lower() for name, member in members.items()}
    if names.get(found) == _KERNELS[backend.sdpa_backend].name.lower():
        return
    reasons = (explain or _torch_reasons)(backend.sdpa_backend, (query, key, mask, grouped))
    raise HardwareError(
        f"hardware.sdpa_backend={backend.sdpa_backend} no es el núcleo que torch usaría en "
        f"{backend.description} ({names.get(found, found)}): {reasons}; "
        f"{use_profile(backend.description)}"
    )


def _torch_reasons(kernel: str, inputs: tuple[Tensor, Tensor, Tensor | None, bool]) -> str:
    """Los motivos que torch da por avisos al preguntarle si un núcleo sirve."""
    query, key, mask, grouped = inputs
    checks = {
        "flash": torch.backends.cuda.can_use_flash_attention,
        "mem_efficient": torch.backends.cuda.can_use_efficient_attention,
        "cudnn": torch.backends.cuda.can_use_cudnn_attention,
    }
    if kernel not in checks:
        return "torch no da motivos"
    params = torch.backends.cuda.SDPAParams(query, key, key, mask, 0.0, mask is None, grouped)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checks[kernel](params, debug=True)
    texts = [str(warning.message).split(" (Triggered")[0].strip() for warning in caught]
    return " ".join(texts) or "torch no da motivos"


def _set_precision() -> None:
    """Acumula siempre en fp32: un perfil cambia la velocidad, no las cuentas.

    Con la reducción en fp16 (que torch activa por defecto) las sumas parciales de un producto de
    matrices pueden desbordar en 65504; TF32 recorta la mantisa a 10 bits.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_accumulation = False


def _driver_cuda() -> tuple[int, int] | None:
    """La mayor versión de CUDA que admite el controlador; `None` si no hay, o torch va sin CUDA."""
    ask = getattr(torch._C, "_cuda_getDriverVersion", None)
    number = int(ask()) if ask is not None else 0
    return (number // 1000, number % 1000 // 10) if number else None


def _platform() -> Literal["linux", "wsl", "windows"]:
    if sys.platform == "win32":
        return "windows"
    return "wsl" if "microsoft" in platform.release().lower() else "linux"


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
