"""La figura del informe: la memoria por fase y, en fp16, la ventana de escalas de la pérdida."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from enlace.config.schema import Config
from enlace.figures import short, size
from enlace.preflight.estimate.record import Estimate
from enlace.preflight.estimate.show import PHASES
from enlace.preflight.health import Health
from enlace.preflight.measurement import Measurement, Outcome
from enlace.preflight.verdict import GIB, memory_budget, memory_margin

_WIDTH, _HEIGHT = 8.0, 2.9
_RESERVED, _USED, _LIMIT = "#b8bfc7", "#6b7784", "#9a3324"
_LABEL_ROOM = 1.25
"""Hasta dónde llega el eje, respecto a lo mayor que se dibuja: la cifra va detrás de su barra."""


@dataclass(frozen=True)
class _Bars:
    """La memoria de cada fase, en bytes, y con qué se compara."""

    names: Sequence[str]
    peaks: Sequence[int | None]
    peak_label: str
    used: Sequence[int | None]
    """Vacío si no se sabe."""
    used_label: str
    budget: int | None
    margin: int


def picture_svg(config: Config, outcome: Outcome) -> bytes:
    """La figura en SVG: mismas cifras, mismos bytes (sin fecha ni identificadores al azar)."""
    panels: list[Callable[[Axes], None]] = []
    if isinstance(outcome, Measurement):
        bars = _measured(config, outcome)
        panels.append(lambda axes: _draw_memory(axes, bars, "Memoria medida por fase"))
    health = outcome.health
    if health is not None:
        panels.append(lambda axes: _draw_window(axes, config, health))
    return _svg(panels)


def estimate_svg(estimate: Estimate) -> bytes:
    """La memoria por fase de una estimación, en SVG de bytes estables."""
    title = f"ESTIMACIÓN, no medida: memoria de {estimate.run_name} en {estimate.device}"
    return _svg([lambda axes: _draw_memory(axes, _estimated(estimate), title)])


def _svg(panels: Sequence[Callable[[Axes], None]]) -> bytes:
    with rc_context({"svg.hashsalt": "enlace"}):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * max(1, len(panels))), layout="constrained")
        FigureCanvasSVG(figure)
        for position, draw in enumerate(panels, 1):
            draw(figure.add_subplot(len(panels), 1, position))
        if not panels:
            figure.text(0.5, 0.5, "La medida no llegó al final", ha="center", va="center")
        target = io.BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()


def _measured(config: Config, outcome: Measurement) -> _Bars:
    memory = outcome.memory
    is_gpu = memory.peak_allocated_bytes is not None
    return _Bars(
        names=[phase.name for phase in memory.phases],
        peaks=[phase.peak_bytes for phase in memory.phases],
        peak_label="pico reservado" if is_gpu else "pico añadido",
        used=[phase.allocated_bytes for phase in memory.phases] if is_gpu else (),
        used_label="pico en uso",
        budget=memory_budget(config, memory),
        margin=memory_margin(config, memory),
    )


def _estimated(estimate: Estimate) -> _Bars:
    memory = estimate.memory
    by_name = {phase.phase: phase for phase in memory.phases}
    phases = {name: by_name[key] for key, name in PHASES.items() if key in by_name}
    return _Bars(
        names=list(phases),
        peaks=[phase.reserved_bytes for phase in phases.values()],
        peak_label="reservado" if memory.context_bytes else "RAM añadida",
        used=[phase.live_bytes for phase in phases.values()],
        used_label="tensores vivos",
        budget=memory.budget_bytes,
        margin=memory.margin_bytes,
    )


def _draw_memory(axes: Axes, bars: _Bars, title: str) -> None:
    """Una barra por fase, con su cifra: lo reservado y lo que de verdad usan los tensores."""
    peaks = [(peak or 0) / GIB for peak in bars.peaks]
    drawn = axes.barh(bars.names, peaks, color=_RESERVED, label=bars.peak_label)
    axes.bar_label(drawn, [size(peak) for peak in bars.peaks], padding=4, fontsize="small")
    if bars.used:
        used = [(value or 0) / GIB for value in bars.used]
        axes.barh(bars.names, used, color=_USED, height=0.4, label=bars.used_label)
    if bars.budget is not None:
        usable = (bars.budget - bars.margin) / GIB
        axes.axvline(bars.budget / GIB, color=_LIMIT, label="disponible")
        axes.axvline(usable, color=_LIMIT, linestyle=":", label="disponible menos el margen")
    largest = max([*peaks, (bars.budget or 0) / GIB])
    axes.set_xlim(0, _LABEL_ROOM * largest if largest in peaks else None)
    axes.invert_yaxis()
    axes.set_xlabel("GiB")
    axes.set_title(title, fontsize="medium", loc="left")
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
    axes.set_title("fp16: qué escalas de la pérdida sirven", fontsize="medium", loc="left")
    _finish(axes)


def _finish(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_major_formatter().__class__.__name__ == "ScalarFormatter":
            axis.set_major_formatter(lambda value, _: short(value))
    axes.grid(color="#e6e8eb", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    # Fuera del dibujo: dentro taparía las barras o las curvas de algún modelo.
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
