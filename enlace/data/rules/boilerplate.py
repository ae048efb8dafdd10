"""Líneas de navegación, avisos y pies de página, en español.

Solo se miran líneas cortas y enteras. Las inequívocas («Todos los derechos reservados») caen solas;
las que también podrían ser un título («Inicio», «Contacto») caen cuando van varias seguidas, como
en un menú. Un parlamento («—Compartir, ¿con quién?») no se toca nunca.
"""

import re
from collections.abc import Callable

from enlace.data.rules.lines import drop_lines
from enlace.data.rules.phrases import MENU, UNMISTAKABLE

_RUN = 3  # líneas dudosas seguidas que forman un menú
# Raya, signo o cita pegada: «« Anterior» es un paginador.
_DIALOGUE = re.compile(r"\s*(?:[—–―¿¡]|«\S)")
_SEPARATORS = re.compile(r"\s*(?:[|·•›»>/]|::|→)\s*")


def boilerplate_cutter(max_line_chars: int) -> Callable[[str], str]:
    """La función que quita las líneas de navegación y aviso de hasta `max_line_chars`."""

    def cut(text: str) -> str:
        lines = text.split("\n")
        marks = [_mark(line, max_line_chars) for line in lines]
        if not any(marks):
            return text
        doomed = _doomed(marks)
        return drop_lines(lines, doomed) if doomed else text

    return cut


def _mark(line: str, max_line_chars: int) -> int | None:
    """3 inequívoca, 2 menú en una línea, 1 dudosa, 0 prosa, None en blanco."""
    if len(line) > max_line_chars:
        return 0
    stripped = line.strip(" \t*-•#").lower()
    if not stripped:
        return None
    if _DIALOGUE.match(line):
        return 0
    if _is_menu(stripped):
        return 2
    if stripped.rstrip(" .:»") in MENU:
        return 1
    return 3 if UNMISTAKABLE.fullmatch(stripped) else 0


def _is_menu(line: str) -> bool:
    parts = [part for part in _SEPARATORS.split(line) if part]
    return len(parts) >= _RUN and sum(part in MENU for part in parts) * 2 > len(parts)


def _doomed(marks: list[int | None]) -> set[int]:
    doomed = {index for index, mark in enumerate(marks) if mark is not None and mark > 1}
    run: list[int] = []
    for index, mark in enumerate([*marks, 0]):
        if mark is None:
            continue
        if mark:
            run.append(index)
            continue
        if len(run) >= _RUN:
            doomed.update(run)
        run = []
    return doomed
