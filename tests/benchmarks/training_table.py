"""El informe de la comparación, en Markdown."""

from collections.abc import Mapping, Sequence

from enlace.figures import NOT_MEASURED, integer, number, percent, size
from tests.benchmarks import training_figures as figures
from tests.benchmarks.training_figures import Bar, Row, Spread
from tests.benchmarks.training_rounds import Comparison
from tests.benchmarks.training_works import LOSS_WORKS, STREAM_WORK

_VERDICTS = {True: "cumple", False: "no cumple", None: NOT_MEASURED}
_STEP_HEADER = (
    "| | parámetros | tokens/s | s por paso | s de CPU por paso | memoria máxima | sobre la de "
    "partida | primera pérdida | × ENLACE (cuartil inferior) | × CPU |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)
_PART_HEADER = (
    "| | ms por vuelta | ms de CPU | memoria de más | × ENLACE (cuartil inferior) |",
    "|---|--:|--:|--:|--:|",
)
_PARTS = {work.name for work in (*LOSS_WORKS, STREAM_WORK)}


def report(about: Mapping[str, str], comparisons: Mapping[str, Comparison]) -> str:
    """El informe entero: la ejecución, una tabla por trabajo y los objetivos."""
    lines = ["# ENLACE frente a otros, en la misma ejecución", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    for comparison in comparisons.values():
        lines += ["", *_section(comparison)]
    lines += ["", "## Objetivos", "", *bars_table(figures.bars(dict(comparisons)))]
    return "\n".join(lines) + "\n"


def _section(comparison: Comparison) -> list[str]:
    found = figures.rows(comparison)
    part = comparison.work in _PARTS
    header, line = (_PART_HEADER, _part_line) if part else (_STEP_HEADER, _step_line)
    pairs = max((len(pairs) for pairs in comparison.pairs.values()), default=0)
    lines = [f"## {comparison.work}", "", f"Parejas por rival: {pairs}.", "", *header]
    lines += [line(row) for row in found]
    width = header[1].count("|") - 3
    for name, reason in comparison.failures.items():
        lines.append(f"| {name} | {reason} |" + " – |" * width)
    if names := figures.unlike(comparison):
        lines += ["", f"Con otro número de parámetros que ENLACE: {', '.join(names)}."]
    return [*lines, *_machine(comparison), *_kernels(comparison)]


def _step_line(row: Row) -> str:
    cells = [
        row.name,
        integer(row.parameters),
        number(row.tokens_per_second, 0),
        number(row.step_seconds, 3),
        number(row.cpu_seconds, 3),
        size(row.peak),
        size(row.extra),
        number(row.first_loss, 4),
        _ratio(row.speedup),
        "1" if row.cpu_ratio is None else number(row.cpu_ratio.median),
    ]
    return f"| {' | '.join(cells)} |"


def _part_line(row: Row) -> str:
    cells = [
        row.name,
        number(1000 * row.step_seconds, 3),
        number(1000 * row.cpu_seconds, 3),
        size(row.extra),
        _ratio(row.speedup),
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(spread: Spread | None) -> str:
    return "1" if spread is None else f"{number(spread.median)} ({number(spread.low)})"


def _machine(comparison: Comparison) -> list[str]:
    best, rate = figures.best_gemm(comparison), figures.flops_per_second(comparison)
    part = figures.share(comparison, best)
    if best is None or rate is None or part is None:
        return []
    flops = comparison.machine[0]["flops"]
    lines = [
        "",
        f"Un paso son {number(flops / 1e9, 1)} GFLOP (contador de torch, atención entera). ENLACE: "
        f"{number(rate.median / 1e9, 1)} GFLOP/s. El mejor producto de matrices de esta ejecución: "
        f"{number(best / 1e9, 1)} GFLOP/s. Parte: {percent(part.median)} (cuartil inferior, "
        f"{percent(part.low)}).",
    ]
    peak = figures.card_peak(comparison)
    if (mfu := figures.share(comparison, peak)) is not None and peak is not None:
        card = comparison.machine[0]["card"]
        lines += [
            "",
            f"MFU: {percent(mfu.median)} de {number(peak / 1e12, 1)} TFLOP/s ({card['name']}, "
            f"{card['dtype']}, a {number(card['clock_khz'] / 1e3, 0)} MHz).",
        ]
    return lines


def _kernels(comparison: Comparison) -> list[str]:
    if not comparison.kernels:
        return []
    each = [
        f"{name}, {integer(counts['kernels'])} y {integer(counts['copies'])}"
        for name, counts in comparison.kernels.items()
    ]
    return ["", f"Núcleos y copias que lanza un paso: {'; '.join(each)}."]


def bars_table(bars: Sequence[Bar]) -> list[str]:
    """Los objetivos, uno por fila, con su veredicto."""
    lines = ["| trabajo | medida | valor | objetivo | |", "|---|---|--:|--:|---|"]
    for bar in bars:
        sign = "≥" if bar.at_least else "≤"
        value = NOT_MEASURED if bar.value is None else number(bar.value, 4)
        limit = f"{sign} {number(bar.limit, 4)}"
        lines.append(f"| {bar.work} | {bar.what} | {value} | {limit} | {_VERDICTS[bar.holds]} |")
    return lines
