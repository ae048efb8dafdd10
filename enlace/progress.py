"""Lo que se ve y lo que queda de un entrenamiento: TSV, métricas, barra y reloj.

`train.tsv` se escribe en la carpeta del run y se repite en la de informes; `metrics.json` es la
última fila, reemplazada entera cada vez (está en git, y git no debe ver nunca media escritura).
Al reanudar, el TSV se recorta al paso del checkpoint: el de un entrenamiento interrumpido acaba
siendo igual al de uno seguido en todas las columnas menos `tokens_per_second`.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from enlace.errors import EnlaceError, cause_of
from enlace.figures import number, rough_duration, scientific
from enlace.files import fsync_file, remove_temporaries, write_json, write_text

TABLE = "train.tsv"
METRICS = "metrics.json"
WARMUP_STEPS = 2
"""Pasos de cada proceso que no entran en la velocidad: compilan núcleos y llenan cachés."""


@dataclass(frozen=True)
class Row:
    """Una fila de `train.tsv`; el orden de los campos es el de las columnas.

    `step` cuenta pasos ya dados, `skipped` y `spikes` son los totales de pasos saltados y de picos,
    `batch` es el
    resumen del batch y `val_loss` va vacía donde no se ha validado.
    """

    step: int
    tokens: int
    loss: float
    lr: float
    grad_norm: float
    scale: float
    skipped: int
    spikes: int
    tokens_per_second: float | None
    batch: str
    val_loss: float | None

    def cells(self) -> list[str]:
        """Los valores como texto exacto: `repr` conserva todos los bits de un float."""
        values = (getattr(self, column) for column in COLUMNS)
        return ["" if value is None else str(value) for value in values]


COLUMNS = tuple(column.name for column in fields(Row))
_HEADER = "\t".join(COLUMNS) + "\n"


@dataclass
class StepClock:
    """Segundos y tokens de los pasos de entrenamiento, sumados a través de los reinicios.

    No cuenta validaciones ni guardados. `seconds` es todo lo entrenado; `warm_seconds` y
    `warm_tokens` dejan fuera los primeros `WARMUP_STEPS` pasos de cada proceso.
    """

    now: Callable[[], float] = time.perf_counter
    seconds: float = 0.0
    warm_seconds: float = 0.0
    warm_tokens: int = 0
    _steps_here: int = field(default=0, init=False)

    @contextmanager
    def measure(self, tokens: int) -> Iterator[None]:
        """Mide un paso de `tokens` tokens; un paso que falla no se cuenta."""
        started = self.now()
        yield
        elapsed = self.now() - started
        self.seconds += elapsed
        self._steps_here += 1
        if self._steps_here > WARMUP_STEPS:
            self.warm_seconds += elapsed
            self.warm_tokens += tokens

    @property
    def tokens_per_second(self) -> float | None:
        """Velocidad media de los pasos en caliente; None mientras no haya ninguno."""
        return self.warm_tokens / self.warm_seconds if self.warm_seconds > 0 else None

    def state_dict(self) -> dict[str, float]:
        """Estado para el checkpoint."""
        return {
            "seconds": self.seconds,
            "warm_seconds": self.warm_seconds,
            "warm_tokens": self.warm_tokens,
        }

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Sigue contando desde un estado guardado."""
        self.seconds = state["seconds"]
        self.warm_seconds = state["warm_seconds"]
        self.warm_tokens = int(state["warm_tokens"])


class TrainLog:
    """El registro de un entrenamiento: fichero, informes y consola.

    Args:
        run_dir: carpeta del run, dueña de `train.tsv`.
        steps: pasos totales, para la barra y el tiempo restante.
        tokens_per_step: tokens por paso, para el tiempo restante.
        reports_dir: carpeta donde se repiten TSV y métricas; None si no hace falta.
        console: consola de rich; en una que no es terminal se escriben líneas sueltas.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        steps: int,
        tokens_per_step: int,
        reports_dir: Path | None = None,
        console: Console | None = None,
    ) -> None:
        self.clock = StepClock()
        self._table = run_dir / TABLE
        self._folders = [run_dir] if reports_dir is None else [run_dir, reports_dir]
        self._steps = steps
        self._tokens_per_step = tokens_per_step
        self._values: dict[str, float | None] = {}
        self._console = Console() if console is None else console
        self._bar = _progress_bar(self._console) if self._console.is_terminal else None
        self._task = self._bar.add_task("", total=steps) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def restart(
        self, step: int, clock: Mapping[str, float], evaluation: Mapping[str, float | None]
    ) -> None:
        """Continúa tras el paso `step`: recorta el TSV, repone los informes y el reloj.

        Args:
            step: pasos del checkpoint (0 si se empieza).
            clock: `StepClock.state_dict` del checkpoint.
            evaluation: valores de la última validación anterior al checkpoint.
        """
        self.clock.load_state_dict(clock)
        self._values = dict(evaluation)
        rows = _rows_until(self._table, step)
        for folder in self._folders:
            for name in (TABLE, METRICS):
                remove_temporaries(folder, name)
            write_text(folder / TABLE, _HEADER + "".join(rows))
        if rows:
            self._write_metrics(dict(zip(COLUMNS, rows[-1].rstrip("\n").split("\t"), strict=True)))
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=step)

    def record(self, row: Row, evaluation: Mapping[str, float | None]) -> None:
        """Añade una fila al TSV, reemplaza las métricas y la muestra en la consola.

        Raises:
            EnlaceError: no se puede escribir, o alguien borró la carpeta del run o la de informes.
        """
        self._values.update(evaluation)
        line = "\t".join(row.cells()) + "\n"
        for folder in self._folders:
            try:
                with (folder / TABLE).open("a", encoding="utf-8") as stream:
                    stream.write(line)
            except FileNotFoundError:
                raise EnlaceError(
                    f"{folder} ha desaparecido durante el entrenamiento; no la borres mientras "
                    "corre y vuelve a lanzar: sigue desde el último checkpoint que quede"
                ) from None
            except OSError as error:
                raise _unwritable(folder / TABLE, error) from error
        self._write_metrics(dict(zip(COLUMNS, row.cells(), strict=True)))
        self._show(row)

    def say(self, text: str) -> None:
        """Escribe un mensaje de una línea sin romper la barra.

        Si ya nadie escucha (tubería cerrada, disco lleno), calla y el entrenamiento sigue: lo que
        cuenta está en el TSV.
        """
        print_line(self._bar.console if self._bar else self._console, text)

    def sync(self) -> None:
        """Lleva el TSV al disco; se llama antes de cada checkpoint, que no debe adelantarlo."""
        if self._table.is_file():
            fsync_file(self._table)

    def _write_metrics(self, cells: Mapping[str, str]) -> None:
        metrics: dict[str, Any] = {name: _number(text) for name, text in cells.items()}
        del metrics["batch"]
        metrics |= {name: finite_or_none(value) for name, value in self._values.items()}
        for folder in self._folders:
            try:
                write_json(folder / METRICS, metrics)
            except OSError as error:
                raise _unwritable(folder / METRICS, error) from error

    def _show(self, row: Row) -> None:
        text = describe(row, self._steps, self._remaining_seconds(row.step))
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=row.step, description=text)
        else:
            self.say(f"paso {row.step}/{self._steps} · {text}")

    def _remaining_seconds(self, step: int) -> float | None:
        speed = self.clock.tokens_per_second
        return None if speed is None else (self._steps - step) * self._tokens_per_step / speed


def describe(row: Row, steps: int, remaining_seconds: float | None) -> str:
    """Una fila en palabras: pérdida, tasa, velocidad y tiempo restante."""
    parts = [
        f"pérdida {number(row.loss, 4)}",
        f"lr {scientific(row.lr)}",
        f"norma {number(row.grad_norm, 2)}",
    ]
    if row.val_loss is not None:
        parts.append(f"validación {number(row.val_loss, 4)}")
    if row.skipped:
        parts.append(f"saltados {row.skipped}")
    if row.spikes:
        parts.append(f"picos {row.spikes}")
    if row.tokens_per_second is not None:
        parts.append(f"{number(row.tokens_per_second, 0)} tokens/s")
    if remaining_seconds is not None and row.step < steps:
        parts.append(f"quedan {rough_duration(remaining_seconds)}")
    return " · ".join(parts)


def print_line(console: Console, text: str) -> None:
    """Escribe una línea; si ya nadie escucha (tubería cerrada), calla desde entonces."""
    try:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    except (OSError, SystemExit):  # ante una tubería cerrada, rich pide salir
        console.quiet = True


def _progress_bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        console=console,
    )


def _rows_until(table: Path, step: int) -> list[str]:
    """Las filas completas de `table` hasta el paso `step`."""
    if not table.is_file():
        return []
    # Tras un corte de luz el final del fichero puede ser basura: solo valen las filas completas.
    lines = table.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return [line for line in lines if _whole_row(line) and int(line.split("\t", 1)[0]) <= step]


def _whole_row(line: str) -> bool:
    cells = line.split("\t")
    return line.endswith("\n") and len(cells) == len(COLUMNS) and cells[0].isdecimal()


def _unwritable(path: Path, error: OSError) -> EnlaceError:
    return EnlaceError(
        f"no se puede escribir {path} ({cause_of(error)}) y no se entrena sin registro; libera "
        "espacio o revisa el disco, y repite la orden: sigue desde el último checkpoint"
    )


def _number(text: str) -> Any:
    """El valor de una celda para JSON: entero, float finito, texto, o None si no lo hay."""
    for kind in (int, float):
        try:
            return finite_or_none(kind(text))
        except ValueError:
            continue
    return text or None


def finite_or_none(value: float | None) -> float | None:
    """El valor si JSON puede escribirlo; None si es infinito, NaN o no lo hay."""
    return value if value is not None and math.isfinite(value) else None
