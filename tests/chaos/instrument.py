"""Envolver al entrenador sin tocarlo: marcar qué hace y pararse donde le esperan.

Solo se usa en el proceso que va a morir, que se lo lleva todo consigo.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from enlace import files
from enlace.progress import TrainLog
from enlace.train import checkpoint, trainer, writer
from enlace.train.snapshot import Camera
from enlace.train.writer import CheckpointWriter
from stages import pretrain
from tests.chaos.marks import Mark, Marks, Phase
from tests.chaos.plan import Ambush

SYSTEM_CALLS = ("write", "fsync", "mkdir", "rename", "replace", "symlink", "unlink", "rmdir")
WRITER_THREAD = "enlace-checkpoint"


class Instruments:
    """Marca las fases y cuenta sus llamadas al sistema.

    Args:
        marks: dónde se marca.
        ambush: en qué llamada hay que pararse (SIGSTOP), si en alguna.
    """

    def __init__(self, marks: Marks, ambush: Ambush | None) -> None:
        self._marks = marks
        self._ambush = ambush
        self._passed = 0

    def install(self) -> None:
        """Envuelve las funciones del entrenador en este proceso."""
        self._wrap(trainer, "open_run", Phase.START, after=self._opened)
        self._wrap(trainer, "train_step", Phase.STEP, after=self._stepped)
        self._wrap(trainer, "evaluate", Phase.VALIDATION)
        self._wrap(TrainLog, "record", Phase.LOG)
        self._wrap(Camera, "take", Phase.SNAPSHOT, after=self._copied)
        self._wrap(CheckpointWriter, "_join", Phase.WAIT)
        self._wrap(pretrain, "export_run", Phase.DELIVERY)
        self._wrap(writer, "write_checkpoint", Phase.WRITING, after=self._written)
        self._wrap(files, "_put_in_place", Phase.RENAME)
        self._wrap(checkpoint, "verify_checkpoint", Phase.CHECK)
        self._wrap(writer, "prune", Phase.PRUNING)
        for name in SYSTEM_CALLS:
            self._count(name)

    def _opened(self, run: Any, training: Any, *rest: Any) -> None:
        self._marks[Mark.RESUMED] = self._marks[Mark.STEPS] = training.counters.step
        self._marks[Mark.LOOP] = Phase.IDLE
        self._marks[Mark.RUNNING] = 1

    def _stepped(self, result: Any, training: Any, *rest: Any) -> None:
        self._marks[Mark.STEPS] = training.counters.step

    def _copied(self, snapshot: Any, *rest: Any) -> None:
        self._marks[Mark.IN_FLIGHT] = snapshot.state["step"]

    def _written(self, *rest: Any) -> None:
        self._marks[Mark.IN_FLIGHT] = -1

    def _wrap(
        self, owner: Any, name: str, phase: Phase, after: Callable[..., None] | None = None
    ) -> None:
        real = getattr(owner, name)
        saving = phase > Phase.NO_SAVE

        def call(*arguments: Any, **options: Any) -> Any:
            # Lo que comparten el guardado y otros (renombrar, comprobar) solo cuenta en su hilo.
            if saving and not in_writer():
                return real(*arguments, **options)
            mark = Mark.WRITER if saving else Mark.LOOP
            before = self._marks[mark]
            self._marks[mark] = phase
            if phase is Phase.DELIVERY:
                self._marks[Mark.RUNNING] = 0
            self._event(phase)
            try:
                result = real(*arguments, **options)
            finally:
                self._marks[mark] = before
            if after is not None:
                after(result, *arguments)
            return result

        setattr(owner, name, call)

    def _count(self, name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self._event(Phase(self._marks[Mark.WRITER if in_writer() else Mark.LOOP]))
            return real(*arguments, **options)

        setattr(os, name, call)

    def _event(self, phase: Phase) -> None:
        if self._ambush is None or phase is not self._ambush.phase:
            return
        self._passed += 1
        if self._passed == self._ambush.call:
            os.kill(os.getpid(), signal.SIGSTOP)


def in_writer() -> bool:
    """Si esto corre en el hilo que guarda."""
    return threading.current_thread().name == WRITER_THREAD
