"""Faltas plantadas a propósito, para ver que el arnés las descubre."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enlace.train import resume, writer
from enlace.train.checkpoint import checkpoint_folders

WRITE = "write_checkpoint"


def replace(module: Any, name: str, value: Any) -> None:
    """Pone `value` en lugar de lo que `module` llama `name`, hasta que muera el proceso."""
    setattr(module, name, value)


def _forget_randomness() -> None:
    """Se sigue sin reponer el azar: las máscaras de dropout ya son otras."""
    replace(resume, "restore_rng", lambda *arguments: None)


def _repeat_batch() -> None:
    """Se guarda un estado que dice un paso menos de los dados."""
    real = resume.run_state

    def late(training: Any, run: Any) -> dict[str, Any]:
        state = real(training, run)
        counters = state["counters"]
        late_step = max(counters["step"] - 1, 0)
        return state | {"counters": counters | {"step": late_step}}

    replace(resume, "run_state", late)


def _prune_everything() -> None:
    """Se borran los anteriores antes de que el nuevo esté entero."""
    real = getattr(writer, WRITE)

    def careless(run_dir: Path, snapshot: Any) -> Path:
        for path in checkpoint_folders(run_dir):
            shutil.rmtree(path)
        written: Path = real(run_dir, snapshot)
        return written

    replace(writer, WRITE, careless)


PLANTED: dict[str, Callable[[], None]] = {
    "azar": _forget_randomness,
    "paso": _repeat_batch,
    "poda": _prune_everything,
}
