"""La figura del informe: la memoria por fase y, en fp16, la ventana de escalas de la pérdida."""

import io

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from enlace.config.schema import Config
from enlace.figures import short
from enlace.preflight.health import Health
from enlace.preflight.measurement import Measurement, Outcome
from enlace.preflight.verdict import GIB, memory_budget, memory_margin

_WIDTH, _HEIGHT = 8.0, 2.9
_RESERVED, _USED, _LIMIT = "#b8bfc7", "#6b7784", "#9a3324"


def picture_svg(config: Config, outcome: Outcome) -> bytes:
    """La figura en SVG: mismas cifras, mismos bytes (sin fecha ni identificadores al azar)."""
    health = outcome.health
    panels = int(isinstance(outcome, Measurement)) + int(health is not None)
    with rc_context({"svg.hashsalt": "enlace"}):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * max(1, panels)), layout="constrained")
        FigureCanvasSVG(figure)
        position = 1
        if isinstance(outcome, Measurement):
            _draw_memory(figure.add_subplot(panels, 1, position), config, outcome)
            position += 1
        if health is not None:
            _draw_window(figure.add_subplot(panels, 1, position), config, health)
        if not panels:
            figure.text(0.5, 0.5, "La medida no llegó al final", ha="center", va="center")
        target = io.BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()


def _draw_memory(axes: Axes, config: Config, outcome: Measurement) -> None:
    """Una barra por fase, con lo reservado y lo que de verdad usan los tensores."""
    memory = outcome.memory
    names = [phase.name for phase in memory.phases]
    peaks = [(phase.peak_bytes or 0) / GIB for phase in memory.phases]
    is_gpu = memory.peak_allocated_bytes is not None
    axes.barh(names, peaks, color=_RESERVED, label="pico reservado" if is_gpu else "pico añadido")
    if is_gpu:
        used = [(phase.allocated_bytes or 0) / GIB for phase in memory.phases]
        axes.barh(names, used, color=_USED, height=0.4, label="pico en uso")
    budget = memory_budget(config, memory)
    if budget is not None:
        usable = (budget - memory_margin(config, memory)) / GIB
        axes.axvline(budget / GIB, color=_LIMIT, label="disponible")
        axes.axvline(usable, color=_LIMIT, linestyle=":", label="disponible menos el margen")
    axes.invert_yaxis()
    axes.set_xlabel("GiB")
    _finish(axes)


def _draw_window(axes: Axes, config: Config, health: Health) -> None:
    """Por escala, qué fracción de los gradientes se hunde, y desde dónde desborda."""
    finite = [point for point in health.window.points if point.finite]
    for group in finite[0].lost if finite else ():
        axes.plot(
            [point.exponent for point in finite],
            [100 * point.lost.get(group, 0.0) for point in finite],
            label=group,
        )
    if health.window.ceiling is not None:
        last = health.window.points[-1].exponent
        axes.axvspan(health.window.ceiling, last + 1, color=_LIMIT, alpha=0.25, label="desborda")
    if health.window.floor is not None and health.window.top is not None:
        axes.axvspan(
            health.window.floor, health.window.top, color=_RESERVED, alpha=0.4, label="sirve"
        )
    axes.set_xlim(health.window.points[0].exponent, health.window.points[-1].exponent + 1)
    axes.set_xlabel("escala de la pérdida (exponente de 2)")
    axes.set_ylabel("gradientes hundidos (%)")
    _finish(axes)


def _finish(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_major_formatter().__class__.__name__ == "ScalarFormatter":
            axis.set_major_formatter(lambda value, _: short(value))
    axes.grid(color="#e6e8eb", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
