"""La figura de la comparación: tokens por segundo de cada uno y los cocientes de cada pareja."""

import io
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tests.benchmarks import training_figures as figures
from tests.benchmarks.training_rounds import Comparison

_WIDTH, _HEIGHT = 10.0, 2.6
_OURS, _OTHERS = "#2f6f8f", "#b8bfc7"


def picture_svg(comparisons: Sequence[Comparison]) -> bytes:
    """Una fila por trabajo: a la izquierda, la velocidad; a la derecha, el cociente por pareja."""
    drawn = [comparison for comparison in comparisons if comparison.pairs]
    with rc_context({"svg.hashsalt": "enlace"}):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * max(1, len(drawn))), layout="constrained")
        FigureCanvasSVG(figure)
        if not drawn:
            figure.text(0.5, 0.5, "No se ha medido nada", ha="center", va="center")
        for row, comparison in enumerate(drawn):
            _draw(figure, comparison, len(drawn), row)
        target = io.BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()


def _draw(figure: Figure, comparison: Comparison, rows: int, row: int) -> None:
    speeds, ratios = (figure.add_subplot(rows, 2, 2 * row + column) for column in (1, 2))
    found = figures.rows(comparison)
    colors = [_OURS if each.name == comparison.ours else _OTHERS for each in found]
    speeds.barh(
        [each.name for each in found], [each.tokens_per_second for each in found], color=colors
    )
    speeds.invert_yaxis()
    speeds.set_title(comparison.work, loc="left")
    speeds.set_xlabel("tokens por segundo (mediana)")
    for name, pairs in comparison.pairs.items():
        values = [theirs.step_seconds / ours.step_seconds for ours, theirs in pairs]
        ratios.plot(values, [name] * len(values), "o", color=_OURS, alpha=0.5)
    ratios.axvline(1.0, color=_OTHERS)
    limit = figures.SPEEDUPS.get(comparison.work)
    if limit is not None:
        ratios.axvline(limit, color="#9a3324", linestyle=":")
    ratios.invert_yaxis()
    ratios.set_xlabel("veces más deprisa va ENLACE, pareja a pareja")
