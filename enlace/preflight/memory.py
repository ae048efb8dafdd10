"""Cuánta memoria usa la medida: la de la GPU, o la del proceso cuando se entrena en CPU."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from enlace.backends import Backend
from enlace.preflight.measurement import MemoryUse

_PROCESS = Path("/proc/self/status")
_RESET_PEAK = Path("/proc/self/clear_refs")
_MACHINE = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_KIB = 1024


@dataclass(frozen=True)
class MemoryGauge:
    """El estado de la memoria al empezar, con el que se compara el pico al acabar."""

    backend: Backend
    free_bytes: int | None
    resident_bytes: int | None

    def read(self) -> MemoryUse:
        """El pico desde que se abrió el medidor."""
        total = self.backend.description.memory_bytes
        if self.backend.device.type == "cuda":
            device = self.backend.device
            stats = torch.cuda.memory_stats(device)
            return MemoryUse(
                peak_bytes=torch.cuda.max_memory_reserved(device),
                peak_allocated_bytes=torch.cuda.max_memory_allocated(device),
                free_bytes=self.free_bytes,
                total_bytes=total,
                allocation_retries=int(stats.get("num_alloc_retries", 0)),
            )
        peak = kibibyte_field(_PROCESS, "VmHWM")
        start = self.resident_bytes
        return MemoryUse(
            peak_bytes=None if peak is None or start is None else max(0, peak - start),
            peak_allocated_bytes=None,
            free_bytes=self.free_bytes,
            total_bytes=total,
            allocation_retries=None,
        )


def open_gauge(backend: Backend) -> MemoryGauge:
    """Anota la memoria libre antes de construir nada y pone el pico a cero.

    En CUDA la cifra libre se lee con el contexto ya creado, así que no hay que descontarlo. En CPU
    el pico es el del proceso (`VmHWM`), que el núcleo deja reiniciar.
    """
    if backend.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(backend.device)
        torch.cuda.reset_peak_memory_stats(backend.device)
        return MemoryGauge(backend, free, None)
    with suppress(OSError):
        _RESET_PEAK.write_text("5", encoding="ascii")
    return MemoryGauge(backend, _free_memory(), kibibyte_field(_PROCESS, "VmRSS"))


def kibibyte_field(path: Path, field: str) -> int | None:
    """Una línea «Campo:  123 kB» de un fichero de `/proc`, en bytes; `None` si no está."""
    with suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * _KIB
    return None


def _free_memory() -> int | None:
    """Lo que el sistema puede dar sin paginar, o lo que queda en el contenedor si es menos."""
    available = kibibyte_field(_MACHINE, "MemAvailable")
    with suppress(OSError, ValueError):
        limit = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        left = max(0, limit - used)
        return left if available is None else min(available, left)
    return available
