"""Reparar el texto que alguien leyó con otra codificación: «canciÃ³n» vuelve a ser «canción».

Repara `ftfy`, que solo cambia una línea si lo que obtiene al deshacer la lectura es UTF-8 válido y
mejor texto. Aquí se decide qué líneas se le enseñan: las que llevan un par de caracteres que el
mojibake produce. Las demás, casi todas, no cuestan nada.
"""

import re

# Lo que cp1252 pone en los bytes 0x80-0x9F; con Latin-1 quedan como controles C1.
_CP1252 = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_SUSPICIOUS = re.compile(
    "[\x80-\x9f]"
    # Primer byte de una secuencia UTF-8 leído como letra, y detrás un byte de continuación.
    f"|[\u00c2-\u00f4][\u00a0-\u00bf{_CP1252}]"
    # La «à», cuyo segundo byte es un espacio duro que alguien convirtió en espacio.
    "|Ã "
    # Lo mismo leído como Mac Roman, o como cp437 y cp850.
    "|[√¬][\u00a0-\u00ffÄ-∞]|[├┬][^\\s\x00-\x7f]"
)


def repair(text: str) -> str:
    """El texto con las líneas mal descodificadas reparadas; el correcto vuelve igual."""
    if text.isascii() or not _SUSPICIOUS.search(text):
        return text
    return "\n".join(map(_repair_line, text.split("\n")))


def _repair_line(line: str) -> str:
    if line.isascii() or not _SUSPICIOUS.search(line):
        return line
    import ftfy

    return str(ftfy.fix_encoding(line))
