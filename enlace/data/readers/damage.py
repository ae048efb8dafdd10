"""Unos pocos bytes dañados en un texto que por lo demás se lee: se arreglan o se quitan.

Perder un libro por un byte es peor que perder el byte. Con más daño que eso el texto deja de ser de
fiar y queda fuera.
"""

import re
from typing import NamedTuple

_BYTES_PER_DAMAGE = 1000
_ESCAPED = re.compile("[\udc80-\udcff]+")
# En UTF-8 estos bytes abren caracteres que el español no usa: sueltos, son de un trozo en cp1252.
_LETTERS = {0xDC00 + letter.encode("cp1252")[0]: letter for letter in "áéíóúüñÁÉÍÓÚÜÑ"}


class Mended(NamedTuple):
    """Un texto sin los bytes que no eran UTF-8, y cuántos eran."""

    text: str
    damaged: int


def bearable(damaged: int, size: int) -> bool:
    """Si tan pocos bytes malos, en un texto de `size` bytes, dejan fiarse del resto."""
    return damaged * _BYTES_PER_DAMAGE <= size


def mend(content: bytes) -> Mended | None:
    """El texto de `content` sin sus bytes que no son UTF-8; None si son demasiados.

    El byte suelto que en cp1252 es una letra del español se queda como esa letra; los demás se
    quitan.
    """
    text = content.decode("utf-8", "surrogateescape")
    damaged = sum(map(len, _ESCAPED.findall(text)))
    if not damaged or not bearable(damaged, len(content)):
        return None
    return Mended(_ESCAPED.sub(_letter, text), damaged)


def _letter(run: "re.Match[str]") -> str:
    return _LETTERS.get(ord(run[0]), "") if len(run[0]) == 1 else ""
