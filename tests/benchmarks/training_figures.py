"""De los turnos a las cifras: cocientes por pareja, medianas, cuartiles y objetivos."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.benchmarks.training_rounds import Comparison, Turn
from tests.benchmarks.training_worker import FLOOR, REFERENCE


class Spread(NamedTuple):
    """Cuartil inferior, mediana y cuartil superior."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Row:
    """La fila de un contrincante; los cocientes son «cuántas veces más deprisa va ENLACE».

    `first_loss` es la de su primer paso: con el mismo modelo, los mismos pesos y los mismos ids, la
    misma.
    """

    name: str
    parameters: int
    tokens_per_second: float
    step_seconds: float
    cpu_seconds: float
    peak: int | None
    extra: int | None
    first_loss: float
    speedup: Spread | None
    cpu_ratio: Spread | None


@dataclass(frozen=True)
class Bar:
    """Un objetivo y lo que ha salido; `value` es None si no se ha podido medir."""

    work: str
    what: str
    value: float | None
    limit: float
    at_least: bool

    @property
    def holds(self) -> bool | None:
        """Si se cumple; None sin medida."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


SPEEDUPS = {"tiny-50m": 1.25, "small": 1.20, "smoke": 1.05}
GEMM_SHARES = {"tiny-50m": 0.75}
PEAKS = {"small": 0.7}
LOSS_MEMORY = {"loss-2048": 1 / 5, "loss-16384": 1 / 20}
LOSS_TIME = 0.85
SIZE_TOLERANCE = 0.01
STREAM_SPEEDUP = 5.0
STREAM_SHARE = 0.001
STREAM_BESIDE = "small"


def quartiles(values: Sequence[float]) -> Spread:
    """Los tres cuartiles, contando los extremos; con un solo valor, los tres son él."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def speedup(pairs: Sequence[tuple[Turn, Turn]]) -> Spread:
    """Cuántas veces más deprisa va el nuestro, pareja a pareja."""
    return quartiles([theirs.step_seconds / ours.step_seconds for ours, theirs in pairs])


def cpu_ratio(pairs: Sequence[tuple[Turn, Turn]]) -> Spread:
    """Cuántos segundos de CPU gasta el rival por cada uno nuestro, pareja a pareja."""
    return quartiles([(t.cpu / t.steps) / (o.cpu / o.steps) for o, t in pairs])


def rows(comparison: Comparison) -> list[Row]:
    """Las filas de quienes tienen algún turno, con ENLACE primero."""
    return [
        _row(comparison, name)
        for name in (comparison.ours, *comparison.pairs)
        if comparison.turns(name)
    ]


def _row(comparison: Comparison, name: str) -> Row:
    turns, pairs = comparison.turns(name), comparison.pairs.get(name)
    seconds = statistics.median(turn.step_seconds for turn in turns)
    return Row(
        name,
        comparison.parameters.get(name, 0),
        comparison.tokens / seconds,
        seconds,
        statistics.median(turn.cpu / turn.steps for turn in turns),
        max((turn.peak for turn in turns if turn.peak is not None), default=None),
        extra_memory(turns),
        comparison.first_losses[name][0],
        speedup(pairs) if pairs else None,
        cpu_ratio(pairs) if pairs else None,
    )


def unlike(comparison: Comparison) -> list[str]:
    """Los rivales cuyo número de parámetros se aparta del de ENLACE más de `SIZE_TOLERANCE`."""
    ours = comparison.parameters.get(comparison.ours, 0)
    return [
        name
        for name in comparison.pairs
        if name != FLOOR and abs(comparison.parameters[name] - ours) > SIZE_TOLERANCE * ours
    ]


def extra_memory(turns: Sequence[Turn]) -> int | None:
    """Bytes del pico por encima de lo que el proceso tenía antes de empezar."""
    extras = [t.peak - t.base for t in turns if t.peak is not None and t.base is not None]
    return max(extras, default=None)


def external_peers(comparison: Comparison) -> list[str]:
    """Los rivales que son de otros: ni la referencia ni el suelo cuentan para los objetivos."""
    return [name for name in comparison.pairs if name not in (REFERENCE, FLOOR)]


def best_gemm(comparison: Comparison) -> float | None:
    """FLOP por segundo del mejor producto de toda la ejecución, de cualquier forma y vuelta."""
    rates = [rate for reply in comparison.machine for rate in reply["gemm"].values()]
    return max(rates, default=None)


def card_peak(comparison: Comparison) -> float | None:
    """El máximo publicado de la tarjeta, en FLOP por segundo; None en CPU."""
    peaks = [reply["card"]["flops"] for reply in comparison.machine if reply.get("card")]
    return peaks[0] if peaks else None


def flops_per_second(comparison: Comparison) -> Spread | None:
    """FLOP por segundo de ENLACE, turno a turno."""
    turns = comparison.turns(comparison.ours)
    if not comparison.machine or not turns:
        return None
    flops = comparison.machine[0]["flops"]
    return quartiles([flops / turn.step_seconds for turn in turns])


def share(comparison: Comparison, peak: float | None) -> Spread | None:
    """Qué parte de `peak` (FLOP/s) alcanza ENLACE."""
    rate = flops_per_second(comparison)
    if rate is None or not peak:
        return None
    return Spread(*(value / peak for value in rate))


def bars(comparisons: dict[str, Comparison]) -> list[Bar]:
    """Los objetivos de los trabajos que se han medido, contra el cuartil que menos favorece."""
    found = []
    for name, comparison in comparisons.items():
        if name in SPEEDUPS:
            found.append(_slowest_speedup(comparison, SPEEDUPS[name]))
        if name in GEMM_SHARES:
            part = share(comparison, best_gemm(comparison))
            what = "parte del mejor GEMM fp32"
            found.append(Bar(name, what, part and part.low, GEMM_SHARES[name], at_least=True))
        if name in PEAKS:
            found.append(_peak(comparison, PEAKS[name]))
        if name in LOSS_MEMORY:
            found += _loss(comparison, LOSS_MEMORY[name])
        if name == "stream":
            found += _stream(comparison, comparisons.get(STREAM_BESIDE))
    return found


def _slowest_speedup(comparison: Comparison, limit: float) -> Bar:
    lows = [speedup(comparison.pairs[name]).low for name in external_peers(comparison)]
    what = "velocidad frente al rival más rápido"
    return Bar(comparison.work, what, min(lows, default=None), limit, at_least=True)


def _peak(comparison: Comparison, limit: float) -> Bar:
    peaks = {row.name: row.peak for row in rows(comparison) if row.peak is not None}
    ours = peaks.get(comparison.ours)
    leanest = min((peaks[p] for p in external_peers(comparison) if p in peaks), default=None)
    value = None if ours is None or leanest is None else ours / leanest
    return Bar(comparison.work, "memoria frente al rival más ligero", value, limit, at_least=False)


def _loss(comparison: Comparison, limit: float) -> list[Bar]:
    extras = [row.extra for row in rows(comparison)]
    ratio = None
    if len(extras) == 2 and extras[0] is not None and extras[1]:
        ratio = extras[0] / extras[1]
    time = None
    for pairs in comparison.pairs.values():
        time = 1 / speedup(pairs).low
    return [
        Bar(comparison.work, "memoria de más de la pérdida", ratio, limit, at_least=False),
        Bar(comparison.work, "tiempo de la pérdida", time, LOSS_TIME, at_least=False),
    ]


def _stream(comparison: Comparison, beside: Comparison | None) -> list[Bar]:
    lows = [speedup(pairs).low for pairs in comparison.pairs.values()]
    found = [
        Bar("stream", "lectura frente a nanoGPT", min(lows, default=None), STREAM_SPEEDUP, True)
    ]
    reading, training = comparison.turns(comparison.ours), beside and beside.turns(beside.ours)
    value = None
    if beside is not None and training and reading:
        per_token = quartiles([turn.step_seconds for turn in reading]).high / comparison.tokens
        step = quartiles([turn.step_seconds for turn in training]).low
        value = per_token * beside.tokens / step
    what = f"lectura como parte de un paso de {STREAM_BESIDE}"
    return [*found, Bar("stream", what, value, STREAM_SHARE, at_least=False)]
