"""Seguir y parar un entrenamiento en marcha."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from enlace.config.load import run_path
from enlace.errors import EnlaceError, LockError
from enlace.progress import COLUMNS, TABLE, Row, describe
from enlace.workspace.runs import LOCK, RUNS, RunSummary, lock_holder, summarize, training_now

_POLL_SECONDS = 0.3


def table_of(run: str, root: Path) -> Path:
    """El `train.tsv` del run `run` (el de su última carpeta).

    Raises:
        ConfigError: no hay ningún run que se llame así.
        EnlaceError: ese run no ha empezado en esta máquina.
    """
    path = root / RUNS / run / TABLE
    if not path.is_file():
        run_path(run, root)  # un nombre mal escrito se dice con los que hay
        raise EnlaceError(
            f"{RUNS / run / TABLE} no existe: el run {run} no ha empezado en esta máquina; "
            f"empieza con `make train RUN={run}`"
        )
    return path


def tail(table: Path, count: int) -> tuple[list[str], int]:
    """Las últimas `count` filas completas del TSV y el byte en el que acaba la última."""
    content = table.read_bytes()
    end = content.rfind(b"\n") + 1
    rows = content[:end].decode("utf-8", "replace").splitlines()[1:]
    return rows[-count:] if count else [], end


def follow(table: Path, start: int, wait: Callable[[], object]) -> Iterator[str]:
    """Las filas completas que se escriban desde el byte `start`, sin fin.

    Entre mirada y mirada llama a `wait`. Al reanudar, el entrenador reemplaza el fichero por uno
    recortado al checkpoint: se nota en el inodo o en el tamaño, y se sigue desde su final.
    """
    inode, position = table.stat().st_ino, start
    while True:
        wait()
        try:
            with table.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if status.st_ino != inode or status.st_size < position:
                    inode, position = status.st_ino, stream.read().rfind(b"\n") + 1
                    continue
                stream.seek(position)
                block = stream.read()
        except FileNotFoundError:
            continue
        whole = block[: block.rfind(b"\n") + 1]
        position += len(whole)
        yield from whole.decode("utf-8", "replace").splitlines()


def pause() -> None:
    """Espera un momento entre dos miradas a un proceso o a un fichero."""
    time.sleep(_POLL_SECONDS)


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
            spikes=int(values["spikes"]),
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
        ConfigError: no hay ningún run que se llame así.
        LockError: hay varios y no se ha dicho cuál.
    """
    found = [item for item in training_now(root) if run is None or item.name == run]
    if run is not None and not found:
        run_path(run, root)  # un nombre mal escrito se dice con los que hay
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
        pause()
    return summarize(summary.folder)


def _optional(text: str) -> float | None:
    return float(text) if text else None
