"""Textos ajenos en un informe; las cifras las escribe `enlace.figures`."""

import unicodedata

_CONTROL_PICTURES = 0x2400


def visible(text: str) -> str:
    """El texto con sus caracteres de control a la vista («␀»), salvo salto de línea y tabulador.

    Un modelo a medio entrenar escribe cualquier byte; un informe debe enseñarlos, no obedecerlos.
    """
    return "".join(_visible_character(character) for character in text)


def _visible_character(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or unicodedata.category(character) != "Cc":
        return character
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return "␡" if code == 0x7F else "\ufffd"
