"""Los runs de esta máquina: hasta dónde llegó cada uno, quién lo entrena y qué falta.

Solo lee: ni borra temporales ni toma cerrojos, de modo que se puede usar mientras se entrena.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from enlace.config.schema import Config
from enlace.progress import TABLE

Kind = TypeVar("Kind", int, float)

RUNS = Path("runs")
LOCK = "lock"
_FOLDER = re.compile(r"(?P<name>.+)-(?P<key>[0-9a-f]{16})")
_STEP = re.compile(r"step_\d{8,}")


@dataclass(frozen=True)
class Holder:
    """El proceso que tiene el cerrojo de un run."""

    pid: int
    host: str
    started: str


@dataclass(frozen=True)
class RunSummary:
    """Lo que se sabe de una carpeta de run; None donde aún no hay nada escrito."""

    folder: Path
    name: str
    key: str
    identity: str | None
    step: int | None
    """Pasos del último checkpoint completo."""
    steps: int | None
    """Pasos totales de la receta."""
    logged_step: int | None
    loss: float | None
    val_loss: float | None
    when: datetime
    holder: Holder | None
    damaged: tuple[str, ...]
    """Checkpoints cuyo estado no coincide con su resumen."""

    @property
    def finished(self) -> bool:
        """Si ya dio todos los pasos."""
        return self.step is not None and self.step == self.steps


def list_runs(root: Path) -> list[RunSummary]:
    """Todos los runs de `root`, del más antiguo al más reciente."""
    folder = root / RUNS
    found = [
        summarize(path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if not path.is_symlink() and path.is_dir() and _FOLDER.fullmatch(path.name)
    ]
    return sorted(found, key=lambda summary: (summary.when, summary.folder.name))


def training_now(root: Path) -> list[RunSummary]:
    """Los runs que algún proceso está entrenando ahora mismo."""
    return [summary for summary in list_runs(root) if summary.holder is not None]


def run_of(config: Config, runs: list[RunSummary]) -> RunSummary | None:
    """El run más reciente de esa configuración (misma identidad), si lo hay."""
    identity = config.identity()
    matching = [summary for summary in runs if summary.identity == identity]
    return matching[-1] if matching else None


def summarize(folder: Path) -> RunSummary:
    """Resume una carpeta `runs/<run_name>-<clave>`."""
    match = _FOLDER.fullmatch(folder.name)
    if match is None:
        raise ValueError(f"{folder} no tiene la forma nombre-clave")
    state, damaged = _newest_state(folder)
    last = _last_values(folder / TABLE)
    table = folder / TABLE
    when = (table if table.exists() else folder).stat().st_mtime
    return RunSummary(
        folder=folder,
        name=match["name"],
        key=match["key"],
        identity=state.get("identity"),
        step=state.get("step"),
        steps=state.get("config", {}).get("train", {}).get("steps"),
        logged_step=_number(last.get("step"), int),
        loss=_number(last.get("loss"), float),
        val_loss=_number(last.get("val_loss"), float),
        when=datetime.fromtimestamp(when).astimezone(),
        holder=lock_holder(folder / LOCK),
        damaged=damaged,
    )


def lock_holder(path: Path) -> Holder | None:
    """Quién tiene el cerrojo `path`, o None si está libre.

    Se mira en /proc/locks en vez de pedir el cerrojo: pedirlo, aunque fuera un instante, podría
    hacer fallar a un entrenamiento que arranca en ese momento.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
        inode = path.stat().st_ino
        holder = Holder(int(record["pid"]), str(record["host"]), str(record["started"]))
        table = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    for line in table.splitlines():
        fields = line.split()
        # «1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF»; las esperas llevan «->» en medio.
        ours = fields[1] == "FLOCK" and fields[4] == str(holder.pid)
        if ours and fields[5].rpartition(":")[2] == str(inode):
            return holder
    return None


def _newest_state(folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """El estado del último checkpoint cuyo resumen coincide, y los nombres de los que no."""
    damaged: list[str] = []
    checkpoints = folder / "checkpoints"
    found = checkpoints.iterdir() if checkpoints.is_dir() else ()
    names = [path.name for path in found if _STEP.fullmatch(path.name)]
    for name in sorted(names, key=lambda text: int(text.removeprefix("step_")), reverse=True):
        try:
            content = (checkpoints / name / "state.json").read_bytes()
            digest = (checkpoints / name / "state.sha256").read_text(encoding="utf-8")[:64]
            if hashlib.sha256(content).hexdigest() == digest:
                state: Any = json.loads(content)
                return dict(state), tuple(damaged)
        except (OSError, ValueError, TypeError):
            pass
        damaged.append(name)
    return {}, tuple(damaged)


def _last_values(table: Path) -> dict[str, str]:
    """El último valor no vacío de cada columna de un TSV; la última línea puede estar a medias."""
    try:
        lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return {}
    if not lines:
        return {}
    columns = lines[0].rstrip("\n").split("\t")
    values: dict[str, str] = {}
    for line in reversed(lines[1:]):
        cells = line.rstrip("\n").split("\t")
        if line.endswith("\n") and len(cells) == len(columns):
            for column, cell in zip(columns, cells, strict=True):
                if cell and column not in values:
                    values[column] = cell
            if len(values) == len(columns):
                break
    return values


def _number(text: str | None, kind: Callable[[str], Kind]) -> Kind | None:
    try:
        return None if text is None else kind(text)
    except ValueError:
        return None
