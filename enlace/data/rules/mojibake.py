"""Reparar el texto que alguien leyó con otra codificación: «canciÃ³n» vuelve a ser «canción».

Repara `ftfy`, que solo cambia una línea si lo que obtiene al deshacer la lectura es UTF-8 válido y
mejor texto. Aquí se decide qué líneas se le enseñan: las que llevan un par de caracteres que el
mojibake produce. Las demás, casi todas, no cuestan nada.
"""

import re

# Lo que cp1252 pone en los bytes 0x80-0x9F; con Latin-1 quedan como controles C1.
_CP1252 = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_SPANISH = "áéíóúñüÁÉÍÓÚÑÜ"
# Los bytes de continuación que no son «°», «ª», «·», comillas, rayas ni espacios.
_UNLIKELY = (
    "\u00a1-\u00a9\u00ac-\u00af\u00b1-\u00b3\u00b5\u00b6\u00b8\u00b9\u00bc-\u00be‚ƒ„†‡ˆ‰ŠŒŽ˜™š›œžŸ"
)
_LEAD = "".join(chr(code) for code in range(0xC2, 0xF5) if chr(code) not in _SPANISH)
# Todas las alternativas empiezan por un carácter de un mismo conjunto: la búsqueda salta de uno a
# otro sin probar las cinco en cada letra.
_SUSPICIOUS = re.compile(
    f"[\x80-\x9f{_LEAD}{_SPANISH}√¬├┬](?:(?<=[\x80-\x9f])"
    # Primer byte de una secuencia UTF-8 leído como letra, y detrás un byte de continuación.
    f"|(?<=[{_LEAD}])[\u00a0-\u00bf{_CP1252}]"
    # «CAFÉ»» también lo parece: tras una letra del español solo cuenta lo que nadie escribiría ahí.
    f"|(?<=[{_SPANISH}])[{_UNLIKELY}]"
    # La «à», cuyo segundo byte es un espacio duro que alguien convirtió en espacio.
    "|(?<=Ã) "
    # Lo mismo leído como Mac Roman, o como cp437 y cp850.
    "|(?<=[√¬])[\u00a0-\u00ffÄ-∞]|(?<=[├┬])[^\\s\x00-\x7f])"
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
