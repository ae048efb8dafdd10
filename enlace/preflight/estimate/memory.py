"""Cuánta memoria pide una traza: viva y reservada, fase a fase."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from enlace.preflight.estimate.allocator import CachingAllocator
from enlace.preflight.estimate.heap import ALIGNMENT, CHUNK_STEP, Heap
from enlace.preflight.estimate.recorder import BUILD, DATA, OBJECT, Event, Trace
from enlace.preflight.estimate.trace import TRACED_STEPS

LOAD = "load"
OFTEN = 0.75
"""Qué parte de los objetos que no siempre existen hay en cada historia."""
HISTORIES = 8
"""Las que se promedian: con ellas la media se mueve un 3 o un 4 %."""
_WORKSPACE_NAME = -1
_CUBLAS_WORKSPACE = (2 * 4096 + 8 * 16) << 10
"""`:4096:2:16:8`, lo que torch pide para cuBLAS si no se dice otra cosa
(`aten/src/ATen/cuda/CublasHandlePool.cpp`); en Hopper son 32 MiB."""


@dataclass
class Peaks:
    """Picos de bytes por fase, en el orden en que aparecen."""

    live: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)

    def see(self, phase: str, live: int, reserved: int) -> None:
        """Apunta un momento."""
        self.live[phase] = max(live, self.live.get(phase, 0))
        self.reserved[phase] = max(reserved, self.reserved.get(phase, 0))

    @property
    def peak_live(self) -> int:
        """El pico de todas las fases."""
        return max(self.live.values())

    @property
    def peak_reserved(self) -> int:
        """El pico de lo reservado en todas las fases."""
        return max(self.reserved.values())


def replay(events: Iterable[Event], workspace_bytes: int = 0) -> Peaks:
    """Repite los nacimientos y las muertes sobre el asignador de CUDA simulado.

    Args:
        events: los de una traza, en orden.
        workspace_bytes: lo que cuBLAS pide una vez, con el primer producto, y no suelta.
    """
    allocator, peaks = CachingAllocator(), Peaks()
    has_workspace = False
    for event in events:
        if event.kind != DATA:
            continue
        if event.phase not in (BUILD, LOAD) and not has_workspace:
            allocator.allocate(_WORKSPACE_NAME, workspace_bytes)
            has_workspace = True
        if event.size:
            allocator.allocate(event.name, event.size)
        else:
            allocator.release(event.name)
        peaks.see(event.phase, allocator.live, allocator.reserved)
    return peaks


def replay_on_heap(events: Sequence[Event], *, keeps: bool = False) -> Peaks:
    """Lo mismo sobre el montón de glibc simulado: la RAM que un entrenamiento en CPU añade.

    La colocación es caótica: empezar 16 bytes más allá, o un objeto de más, cambia el pico en un
    10 %, como cambia de una medida a otra. Lo reservado es la media de varias historias, cada una
    con su comienzo y con los objetos que solo existen a veces echados a suertes. `keeps`, como en
    `Heap`.
    """
    every = [replay_history(events, seed, keeps=keeps) for seed in range(HISTORIES)]
    total = {phase: sum(peaks.reserved[phase] for peaks in every) for phase in every[0].live}
    return Peaks(every[0].live, {phase: size // len(every) for phase, size in total.items()})


def replay_history(events: Iterable[Event], seed: int, *, keeps: bool = False) -> Peaks:
    """Una de las historias que promedia `replay_on_heap`; la misma semilla da la misma."""
    heap, peaks, sizes = Heap(CHUNK_STEP * seed % ALIGNMENT, keeps=keeps), Peaks(), {}
    draw = random.Random(seed)  # noqa: S311 - una suerte que se repite, no un secreto
    for _, phase, name, size, kind in events:
        if kind == DATA:
            if size:
                sizes[name] = size
                heap.allocate(name, size)
            else:
                heap.release(name, sizes.get(name, 0))
        elif not size:
            heap.release_object(name)
        elif kind == OBJECT or draw.random() < OFTEN:
            heap.allocate_object(name, size)
        peaks.see(phase, heap.live, heap.reserved)
    return peaks


def combined(*all_peaks: Peaks) -> Peaks:
    """El peor caso de cada fase entre varias historias."""
    worst = Peaks()
    for peaks in all_peaks:
        for phase, live in peaks.live.items():
            worst.see(phase, live, peaks.reserved[phase])
    return worst


def workspace_bytes() -> int:
    """El espacio de trabajo de cuBLAS, que sale del mismo asignador y no se devuelve."""
    return _CUBLAS_WORKSPACE


def resumed(trace: Trace) -> Iterator[Event]:
    """Los mismos sucesos como los vería quien reanuda: el estado entra antes del primer paso."""
    for event in trace.events:
        if event.phase == BUILD:
            yield event
    for name, size in trace.state:
        yield Event(-1, LOAD, name, size)
    loaded = {name for name, _ in trace.state}
    built = {event.name for event in trace.events if event.phase == BUILD}
    alive = {event.name for event in trace.events if event.step == 0} - loaded
    for event in trace.events:
        if event.step >= TRACED_STEPS - 1 and (event.name not in alive or event.name in built):
            yield event
