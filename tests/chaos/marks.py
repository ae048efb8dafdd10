"""Lo que un entrenador dice de sí mismo mientras vive, y que sobrevive a un SIGKILL.

Son enteros de 8 bytes en un fichero proyectado en memoria: escribir uno no cuesta nada, y quien lo
mata los lee después tal como estaban en el instante de morir.
"""

import mmap
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self


class Phase(IntEnum):
    """Qué estaba haciendo. Las del hilo que guarda van detrás, y tapan a las del bucle."""

    START = 0
    STEP = 1
    SNAPSHOT = 2
    WAIT = 3
    VALIDATION = 4
    LOG = 5
    IDLE = 6
    DELIVERY = 7
    NO_SAVE = 8
    WRITING = 9
    RENAME = 10
    CHECK = 11
    PRUNING = 12


PHASE_NAMES = {
    Phase.START: "arranque",
    Phase.STEP: "paso",
    Phase.SNAPSHOT: "copia",
    Phase.WAIT: "espera",
    Phase.VALIDATION: "validación",
    Phase.LOG: "registro",
    Phase.IDLE: "reposo",
    Phase.DELIVERY: "entrega",
    Phase.WRITING: "escritura",
    Phase.RENAME: "renombrado",
    Phase.CHECK: "relectura",
    Phase.PRUNING: "poda",
}


class Mark(IntEnum):
    """Los enteros.

    `RUNNING`: 1 mientras las señales se atienden al acabar el paso. `RESUMED`: paso desde el que
    siguió, o −1. `STEPS`: pasos dados. `IN_FLIGHT`: paso del guardado en marcha, o −1.
    """

    RUNNING = 0
    RESUMED = 1
    STEPS = 2
    IN_FLIGHT = 3
    LOOP = 4
    WRITER = 5


_BYTES = 8


class Marks:
    """Las marcas de un entrenador, en `path`; se usa como contexto."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as stream:
            stream.truncate(_BYTES * len(Mark))
            self._map = mmap.mmap(stream.fileno(), _BYTES * len(Mark))
        self._values = memoryview(self._map).cast("q")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._values.release()
        self._map.close()

    def __getitem__(self, mark: Mark) -> int:
        return int(self._values[mark])

    def __setitem__(self, mark: Mark, value: int) -> None:
        self._values[mark] = value

    def reset(self) -> None:
        """Las de un entrenador que aún no ha empezado."""
        for mark in Mark:
            self[mark] = 0
        self[Mark.RESUMED] = self[Mark.STEPS] = self[Mark.IN_FLIGHT] = -1
        self[Mark.WRITER] = Phase.NO_SAVE

    @property
    def phase(self) -> Phase:
        """Lo que estaba haciendo."""
        writer = Phase(self[Mark.WRITER])
        return Phase(self[Mark.LOOP]) if writer is Phase.NO_SAVE else writer
