"""Piezas de Markdown que ningún texto ajeno puede romper."""

import re
from collections.abc import Sequence

from enlace.reports.text import visible

_SHORTEST_FENCE = 3


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Una tabla; las barras y los saltos de línea de las celdas se escapan."""
    lines = [_row(header), _row(["---"] * len(header)), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def code_block(text: str) -> str:
    """Un bloque literal cuya valla es más larga que cualquier serie de acentos graves del texto."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(_SHORTEST_FENCE, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}\n"


def escape(text: str) -> str:
    """Una frase ajena, en una línea y sin que ninguno de sus signos signifique nada."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", visible(text).replace("\n", " "))


def _row(cells: Sequence[str]) -> str:
    clean = [visible(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
    return "| " + " | ".join(clean) + " |"
