"""Checkpoints diminutos hechos a mano, para no entrenar en cada prueba."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from enlace.train.checkpoint import (
    CHECKPOINTS,
    DIGEST,
    MODEL,
    OPTIMIZER,
    STATE,
    STATE_VERSION,
    write_checkpoint,
)
from enlace.train.snapshot import Camera, Snapshot

CPU = torch.device("cpu")
_SECTIONS = (
    "counters",
    "schedule",
    "scaler",
    "watch",
    "stream",
    "clock",
    "evaluation",
    "origin",
    "config",
)


def small_state(step: int, **changes: Any) -> dict[str, Any]:
    """Un estado con la forma debida y nada dentro."""
    state: dict[str, Any] = {key: {} for key in _SECTIONS}
    state |= {"version": STATE_VERSION, "step": step, "tokens": 0}
    state |= {"identity": "i", "fingerprint": "f", "segments": []}
    return state | changes


def small_tensors(step: int, size: int = 4) -> dict[str, Tensor]:
    return {"w": torch.full((size,), float(step)), "b": torch.tensor(step)}


def snapshot(step: int, size: int = 4, **changes: Any) -> Snapshot:
    tensors = small_tensors(step, size)
    return Camera(CPU).take(small_state(step, **changes), {MODEL: tensors, OPTIMIZER: tensors})


def save_small(run_dir: Path, step: int, **changes: Any) -> Path:
    return write_checkpoint(run_dir, snapshot(step, **changes))


def steps_in(run_dir: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (run_dir / CHECKPOINTS).iterdir())


def rewrite_state(path: Path, state: dict[str, Any]) -> None:
    """Cambia el estado y vuelve a firmarlo: un error nuestro, no un disco roto."""
    text = json.dumps(state)
    (path / STATE).write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (path / DIGEST).write_text(f"{digest}  {STATE}\n", encoding="utf-8")


def read_raw_state(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
    return state


def flip(path: Path, bit: int) -> None:
    """Cambia un bit de un fichero."""
    with path.open("r+b") as stream:
        stream.seek(bit // 8)
        value = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([value ^ (1 << bit % 8)]))
