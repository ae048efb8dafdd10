"""La curva de pérdida de un entrenamiento, como SVG de bytes estables."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from enlace.errors import DataError
from enlace.figures import short

_INCHES = (8.0, 3.6)
_MAX_POINTS = 600
"""Más puntos no se distinguen en la página; la curva los promedia por tramos."""
_TRAIN_COLOR, _VALIDATION_COLOR = "#b8bfc7", "#9a3324"

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """Pares (paso, pérdida en nats por token) de entrenamiento y de validación."""

    train: tuple[tuple[int, float], ...]
    validation: tuple[tuple[int, float], ...]

    @property
    def empty(self) -> bool:
        """Si no hay ni un punto que dibujar."""
        return not (self.train or self.validation)


def read_curve(table: Path) -> Curve:
    """Lee las columnas `step`, `loss` y `val_loss` de un `train.tsv`; las celdas vacías se saltan.

    Raises:
        DataError: si el fichero no tiene esas columnas o una celda no es un número.
    """
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    try:
        train, validation = (
            tuple((int(row["step"]), float(row[name])) for row in rows if row[name])
            for name in ("loss", "val_loss")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{table}: no es la tabla de un entrenamiento ({error}); repite make train para "
            "escribirla de nuevo"
        ) from None
    return Curve(train, validation)


def condense(points: Points, most: int = _MAX_POINTS) -> list[tuple[float, float]]:
    """Como mucho `most` puntos: la media de cada tramo. Los valores no finitos se descartan."""
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if len(finite) <= most:
        return [(float(step), value) for step, value in finite]
    edges = [len(finite) * i // most for i in range(most + 1)]
    return [
        (
            sum(step for step, _ in finite[a:b]) / (b - a),
            math.fsum(value for _, value in finite[a:b]) / (b - a),
        )
        for a, b in pairwise(edges)
    ]


def curve_svg(curve: Curve) -> bytes:
    """La figura en SVG: mismos puntos, mismos bytes (sin fecha ni identificadores al azar)."""
    with rc_context({"svg.hashsalt": "enlace", "axes.unicode_minus": True}):
        figure = Figure(figsize=_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for points, label, color, width in (
            (curve.train, "entrenamiento", _TRAIN_COLOR, 1.0),
            (curve.validation, "validación", _VALIDATION_COLOR, 1.8),
        ):
            shown = condense(points)
            if shown:
                steps, values = zip(*shown, strict=True)
                marker = "o" if len(shown) == 1 else None
                axes.plot(steps, values, label=label, color=color, linewidth=width, marker=marker)
        axes.set_xlabel("paso")
        axes.set_ylabel("pérdida (nats por token)")
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.grid(color="#e6e8eb", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        target = io.BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()
