"""Buscar el mayor y el más rápido micro-batch que caben, con los mismos tokens por paso.

Cada intento mide en su propio proceso: después de quedarse sin memoria, el asignador de CUDA ya no
está como al principio y el siguiente intento mentiría. No escribe ni veredicto ni sello: aconseja,
y quien decide es `make preflight` con los valores ya puestos.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.figures import integer, percent, size
from enlace.preflight.measurement import Failure, Measurement, Outcome
from enlace.preflight.verdict import Verdict, judge

SEARCH_STEPS = 2
"""Pasos medidos en cada intento: aquí se comparan velocidades, no se prevén horas."""
_SAME_SPEED = 0.02
"""Con tan pocos pasos, una diferencia menor no se distingue de la de repetir la medida."""


@dataclass(frozen=True)
class Attempt:
    """Un micro-batch probado."""

    micro_batch: int
    outcome: Outcome
    verdict: Verdict

    @property
    def fits(self) -> bool:
        """Si cabe con el margen (o si el sistema no deja medirlo pero terminó)."""
        return isinstance(self.outcome, Measurement) and self.verdict.fit in ("cabe", "no medido")

    @property
    def tokens_per_second(self) -> float:
        """La velocidad; 0 si no llegó a medirse."""
        return self.outcome.tokens_per_second if isinstance(self.outcome, Measurement) else 0.0


@dataclass(frozen=True)
class Search:
    """Los intentos, por micro-batch creciente."""

    attempts: tuple[Attempt, ...]

    @property
    def largest(self) -> Attempt | None:
        """El mayor que cabe."""
        return max(self._fitting(), key=lambda attempt: attempt.micro_batch, default=None)

    @property
    def fastest(self) -> Attempt | None:
        """El más rápido de los que caben; a igual velocidad, el menor."""
        return max(self._fitting(), key=lambda attempt: attempt.tokens_per_second, default=None)

    def _fitting(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.fits]


def search_micro_batch(
    config: Config,
    measure: Callable[[Config], Outcome],
    progress: Callable[[int], None] = lambda _: None,
) -> Search:
    """Prueba divisores de las secuencias del paso: doblando hasta que no quepa y por mitades luego.

    Args:
        config: la configuración; solo cambia `hardware.micro_batch`.
        measure: mide una configuración en un proceso aparte.
        progress: se llama con cada micro-batch antes de probarlo.

    Raises:
        PreflightError: un intento no se pudo hacer por algo que no es la memoria.
    """
    candidates = divisors(config.sequences_per_step)
    tried: dict[int, Attempt] = {}

    def fits(index: int) -> bool:
        rows = candidates[index]
        if rows not in tried:
            progress(rows)
            tried[rows] = _attempt(config, rows, measure)
        return tried[rows].fits

    good, bad = -1, len(candidates)
    index = 0
    while index < len(candidates) and fits(index):
        good = index
        index = next((i for i, rows in enumerate(candidates) if rows >= 2 * candidates[good]), -1)
        if index < 0:
            break
    bad = index if good < index < len(candidates) else bad
    while bad - good > 1 and good >= 0:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return Search(tuple(tried[rows] for rows in sorted(tried)))


def divisors(number: int) -> list[int]:
    """Los divisores de un número, de menor a mayor."""
    return [value for value in range(1, number + 1) if number % value == 0]


def show_search(search: Search, current: int, command: Callable[[int], str], out: Console) -> None:
    """La tabla de velocidades y la recomendación, con la orden que la pone en práctica.

    Args:
        search: lo encontrado.
        current: el micro-batch de la configuración.
        command: la orden que pone otro.
        out: dónde se escribe.

    Raises:
        PreflightError: no cabe ninguno.
    """
    table = Table(title="Micro-batch: velocidad y memoria")
    for heading in ("Micro-batch", "Tokens por segundo", "Memoria necesaria", "Cabe"):
        table.add_column(heading, justify="right")
    for attempt in search.attempts:
        table.add_row(*_cells(attempt))
    out.print(table)
    best, largest = search.fastest, search.largest
    if best is None or largest is None:
        raise PreflightError(f"ningún micro-batch sirve: {search.attempts[0].verdict.reasons[0]}")
    text = f"El mayor que cabe es {largest.micro_batch} y el más rápido, {best.micro_batch}."
    if largest is best:
        text = f"El mayor que cabe, {best.micro_batch}, es también el más rápido."
    out.print(text, markup=False, highlight=False)
    now = next((one for one in search.attempts if one.micro_batch == current and one.fits), None)
    advice = command(best.micro_batch)
    if best is now:
        advice = "Es el que ya está puesto."
    elif now is not None and now.tokens_per_second >= (1 - _SAME_SPEED) * best.tokens_per_second:
        slower = percent(1 - now.tokens_per_second / best.tokens_per_second)
        advice = f"El que ya está puesto, {current}, va un {slower} más lento: no merece cambiarlo."
    out.print(advice, markup=False, highlight=False, soft_wrap=True)


def params_command(run: str, changes: Sequence[tuple[str, str]], micro_batch: int) -> str:
    """La orden `make params` que pone `micro_batch` y conserva los demás cambios de `params.yaml`.

    Args:
        run: el run de `params.yaml`.
        changes: (clave, valor) en los que ya difiere de su fichero.
        micro_batch: el nuevo.
    """
    key = "hardware.micro_batch"
    kept = [f"{name}={value}" for name, value in changes if name != key]
    settings = " ".join([*kept, f"{key}={micro_batch}"])
    quote = "'" if '"' in settings else '"'
    return f"make params RUN={run} SET={quote}{settings}{quote}"


def _attempt(config: Config, rows: int, measure: Callable[[Config], Outcome]) -> Attempt:
    preflight = config.hardware.preflight.model_copy(update={"steps": SEARCH_STEPS})
    changes = {"micro_batch": rows, "preflight": preflight}
    hardware = config.hardware.model_copy(update=changes)
    changed = config.model_copy(update={"hardware": hardware})
    outcome = measure(changed)
    if isinstance(outcome, Failure) and outcome.kind == "refused":
        raise PreflightError(outcome.detail)
    return Attempt(rows, outcome, judge(changed, outcome))


def _cells(attempt: Attempt) -> tuple[str, str, str, str]:
    outcome = attempt.outcome
    if isinstance(outcome, Failure):
        return str(attempt.micro_batch), "–", "–", attempt.verdict.fit
    speed = integer(round(outcome.tokens_per_second))
    return str(attempt.micro_batch), speed, size(outcome.memory.needed_bytes), attempt.verdict.fit
