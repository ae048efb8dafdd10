"""Seguir y parar un entrenamiento en marcha."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from enlace.errors import EnlaceError, LockError
from enlace.progress import COLUMNS, TABLE, Row, describe
from enlace.workspace.runs import LOCK, RUNS, RunSummary, lock_holder, summarize, training_now

_POLL_SECONDS = 0.3


def table_of(run: str, root: Path) -> Path:
    """El `train.tsv` del run `run` (el de su última carpeta).

    Raises:
        EnlaceError: ese run no ha empezado en esta máquina.
    """
    path = root / RUNS / run / TABLE
    if not path.is_file():
        raise EnlaceError(
            f"{RUNS / run / TABLE} no existe: el run {run} no ha empezado en esta máquina; "
            f"empieza con `make train RUN={run}`"
        )
    return path


def last_lines(table: Path, count: int) -> list[str]:
    """Las últimas `count` filas completas del TSV (sin la cabecera)."""
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
    whole = [line.rstrip("\n") for line in lines if line.endswith("\n")]
    return whole[-count:] if count else []


def follow(table: Path) -> Iterator[str]:
    """Las filas que se van escribiendo desde ahora, sin fin.

    Al reanudar, el entrenador reemplaza el fichero: se nota en el inodo, y se sigue en el nuevo.
    """
    inode, position = _identity(table)
    while True:
        time.sleep(_POLL_SECONDS)
        current, size = _identity(table)
        if current is None or size is None:
            continue
        if current != inode or position is None or size < position:
            inode, position = current, size
            continue
        with table.open("rb") as stream:
            stream.seek(position)
            block = stream.read()
        whole = block[: block.rfind(b"\n") + 1]
        position += len(whole)
        yield from whole.decode("utf-8", "replace").splitlines()


def readable(line: str, steps: int | None) -> str:
    """Una fila del TSV como la escribe el entrenador; tal cual si no se entiende."""
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        return line
    values = dict(zip(COLUMNS, cells, strict=True))
    try:
        row = Row(
            step=int(values["step"]),
            tokens=int(values["tokens"]),
            loss=float(values["loss"]),
            lr=float(values["lr"]),
            grad_norm=float(values["grad_norm"]),
            scale=float(values["scale"]),
            skipped=int(values["skipped"]),
            tokens_per_second=_optional(values["tokens_per_second"]),
            batch=values["batch"],
            val_loss=_optional(values["val_loss"]),
        )
    except ValueError:
        return line
    total = row.step if steps is None else steps
    return f"paso {row.step}/{steps or '?'} · {describe(row, total, None)}"


def running(run: str | None, root: Path) -> RunSummary | None:
    """El entrenamiento en marcha (el del run `run`, si se da), o None si no hay ninguno.

    Raises:
        LockError: hay varios y no se ha dicho cuál.
    """
    found = [item for item in training_now(root) if run is None or item.name == run]
    if len(found) > 1:
        names = ", ".join(item.folder.name for item in found)
        raise LockError(f"hay varios entrenamientos en marcha ({names}); di cuál: enlace stop RUN")
    return found[0] if found else None


def stop(summary: RunSummary) -> RunSummary:
    """Pide al entrenador que pare y espera a que guarde; devuelve cómo queda su run.

    Raises:
        LockError: no hay permiso para parar el proceso.
    """
    holder = summary.holder
    if holder is None:
        return summary
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise LockError(
            f"el proceso {holder.pid} es de otro usuario y no se puede parar desde aquí; "
            "pídeselo a quien lo lanzó"
        ) from None
    while lock_holder(summary.folder / LOCK) == holder:
        time.sleep(_POLL_SECONDS)
    return summarize(summary.folder)


def _identity(table: Path) -> tuple[int | None, int | None]:
    try:
        status = table.stat()
    except FileNotFoundError:
        return None, None
    return status.st_ino, status.st_size


def _optional(text: str) -> float | None:
    return float(text) if text else None
