"""Cuánta memoria usa la medida: la de la GPU, o la del proceso cuando se entrena en CPU."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from enlace.backends import Backend
from enlace.preflight.measurement import MemoryUse, Phase, PhaseMemory

STEADY_PHASE: Phase = "pasos"
_PROCESS = Path("/proc/self/status")
_RESET_PEAK = Path("/proc/self/clear_refs")
_MACHINE = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_KIB = 1024


@dataclass
class MemoryGauge:
    """El estado de la memoria al empezar, con el que se comparan los picos de cada fase."""

    backend: Backend
    free_bytes: int | None
    resident_bytes: int | None
    context_bytes: int | None = None
    phases: list[PhaseMemory] = field(default_factory=list)

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Apunta el pico de lo que ocurra dentro del bloque."""
        self._reset_peak()
        yield
        peak, allocated = self._peak()
        self.phases.append(PhaseMemory(name=name, peak_bytes=peak, allocated_bytes=allocated))

    def read(self) -> MemoryUse:
        """Los picos desde que se abrió el medidor: el de todas las fases y el de los pasos.

        Sin ninguna fase, el pico es el de todo lo ocurrido desde que se abrió.
        """
        phases = self.phases
        if not phases:
            peak, allocated = self._peak()
        else:
            peak = _largest(phase.peak_bytes for phase in phases)
            allocated = _largest(phase.allocated_bytes for phase in phases)
        steady = [phase for phase in phases if phase.name == STEADY_PHASE]
        return MemoryUse(
            peak_bytes=peak,
            peak_allocated_bytes=allocated,
            steady_bytes=_largest(phase.peak_bytes for phase in steady),
            steady_allocated_bytes=_largest(phase.allocated_bytes for phase in steady),
            non_torch_bytes=self._non_torch(),
            context_bytes=self.context_bytes,
            free_bytes=self.free_bytes,
            total_bytes=self.backend.description.memory_bytes,
            allocation_retries=self._retries(),
            phases=tuple(phases),
        )

    def _reset_peak(self) -> None:
        if self.backend.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.backend.device)
            return
        with suppress(OSError):
            _RESET_PEAK.write_text("5", encoding="ascii")

    def _peak(self) -> tuple[int | None, int | None]:
        if self.backend.device.type == "cuda":
            device = self.backend.device
            return (
                torch.cuda.max_memory_reserved(device),
                torch.cuda.max_memory_allocated(device),
            )
        peak = kibibyte_field(_PROCESS, "VmHWM")
        if peak is None or self.resident_bytes is None:
            return None, None
        return max(0, peak - self.resident_bytes), None

    def _non_torch(self) -> int | None:
        """Lo que falta de la memoria libre del principio y torch no tiene reservado."""
        if self.backend.device.type != "cuda" or self.free_bytes is None:
            return None
        free, _ = torch.cuda.mem_get_info(self.backend.device)
        reserved = torch.cuda.memory_reserved(self.backend.device)
        return max(0, self.free_bytes - free - reserved)

    def _retries(self) -> int | None:
        if self.backend.device.type != "cuda":
            return None
        return int(torch.cuda.memory_stats(self.backend.device).get("num_alloc_retries", 0))


def open_gauge(backend: Backend, free_before_context: int | None = None) -> MemoryGauge:
    """Anota la memoria libre antes de construir nada y pone el pico a cero.

    En CUDA la cifra libre se lee con el contexto ya creado, así que no hay que descontarlo. En CPU
    el pico es el del proceso (`VmHWM`), que el núcleo deja reiniciar.

    Args:
        backend: el dispositivo.
        free_before_context: memoria libre antes de que torch tocara la GPU, si NVML la dijo.
    """
    if backend.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(backend.device)
        context = None if free_before_context is None else max(0, free_before_context - free)
        gauge = MemoryGauge(backend, free, None, context)
    else:
        gauge = MemoryGauge(backend, _free_memory(), kibibyte_field(_PROCESS, "VmRSS"))
    gauge._reset_peak()
    return gauge


def kibibyte_field(path: Path, field: str) -> int | None:
    """Una línea «Campo:  123 kB» de un fichero de `/proc`, en bytes; `None` si no está."""
    with suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * _KIB
    return None


def _largest(values: Iterator[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _free_memory() -> int | None:
    """Lo que el sistema puede dar sin paginar, o lo que queda en el contenedor si es menos."""
    available = kibibyte_field(_MACHINE, "MemAvailable")
    with suppress(OSError, ValueError):
        limit = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        left = max(0, limit - used)
        return left if available is None else min(available, left)
    return available
