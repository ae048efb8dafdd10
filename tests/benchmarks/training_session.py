"""El turno de un contrincante, visto desde dentro de su proceso.

El proceso recibe por su entrada una orden por línea, en JSON, y contesta con otra línea:

    {"do": "run", "steps": 2}   da dos pasos y contesta con lo que han costado
    {"do": "profile"}           da uno más con el perfilador y contesta cuántos núcleos lanza
    (fin de la entrada)         termina

El contrincante no sabe nada de esto: llama a `ready` cuando está montado y a `step` tras cada paso,
también desde dentro de un bucle ajeno, y allí se queda parado hasta que vuelve a tocarle.
"""

import json
import time
from pathlib import Path
from typing import Any, TextIO

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class Session:
    """La conversación con quien reparte los turnos."""

    def __init__(self, commands: TextIO, replies: TextIO, device: str) -> None:
        self.extra: dict[str, Any] = {}
        """Cifras propias del contrincante; van con cada respuesta."""
        self._commands, self._replies, self._device = commands, replies, device
        self._left = 0
        self._losses: list[Any] = []
        self._base: int | None = None
        self._profiler: Any = None

    def mark_base(self) -> None:
        """Apunta la memoria de ahora: la que el contrincante tiene antes de lo que se mide."""
        self._base = read_memory(self._device)[0]

    def ready(self, parameters: int) -> None:
        """Anuncia que está montado y espera el primer turno."""
        self._send({"ready": True, "parameters": parameters})
        self._wait()

    def step(self, loss: Any) -> None:
        """Un paso más; si era el último del turno, contesta y espera al siguiente.

        Args:
            loss: número, o tensor escalar que no se mira hasta acabar el turno.
        """
        self._losses.append(loss)
        self._left -= 1
        if self._left:
            return
        self._synchronize()
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            self.extra["kernels"] = count_kernels(self._profiler.events())
            self._profiler = None
        reply = {
            "wall": wall,
            "cpu": cpu,
            "steps": len(self._losses),
            "losses": [float(loss) for loss in self._losses],
            "peak": read_memory(self._device)[1],
            "base": self._base,
        }
        self._send({**reply, **self.extra})
        self._losses.clear()
        self._wait()

    def _wait(self) -> None:
        line = self._commands.readline()
        if not line:
            raise SystemExit(0)
        command = json.loads(line)
        self._left = command.get("steps", 1)
        reset_peak(self._device)
        if command["do"] == "profile":
            self._profiler = _open_profiler(self._device)
        self._synchronize()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def _send(self, reply: dict[str, Any]) -> None:
        self._replies.write(json.dumps(reply) + "\n")
        self._replies.flush()

    def _synchronize(self) -> None:
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()


def read_memory(device: str) -> tuple[int | None, int | None]:
    """Bytes de ahora y máximos: residentes del proceso en CPU, de tensores en CUDA."""
    if device == "cuda":
        import torch

        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    sizes = [values.get(name) for name in ("VmRSS", "VmHWM")]
    now, peak = (None if size is None else int(size.split()[0]) << 10 for size in sizes)
    return now, peak


def reset_peak(device: str) -> None:
    """Hace que el máximo empiece a contar desde ahora."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        return
    _CLEAR.write_text(_RESET_PEAK, encoding="ascii")


def count_kernels(events: Any) -> dict[str, int]:
    """Cuántos núcleos y cuántas copias ha ejecutado la GPU, según los sucesos del perfilador.

    Un suceso es de la GPU si su `device_type` se llama CUDA; las copias y los rellenos de memoria
    (`Memcpy…`, `Memset…`) no son núcleos.
    """
    names = [event.name for event in events if getattr(event.device_type, "name", "") == "CUDA"]
    copies = sum(name.startswith(("Memcpy", "Memset")) for name in names)
    return {"kernels": len(names) - copies, "copies": copies}


def _open_profiler(device: str) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(activities=activities)
    profiler.__enter__()
    return profiler
