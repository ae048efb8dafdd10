"""Caracteres: fines de línea, controles, invisibles, NFC y espacios.

Los cambios se aplican en este orden y limpiar dos veces es limpiar una.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

# Todo lo que Unicode trata como fin de línea: quitarlo sin más pegaría dos palabras.
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Guion blando, espacios de anchura cero, marcas de dirección y BOM interiores.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
_BLANK = re.compile("\n{4,}")


class Change(NamedTuple):
    """Un arreglo: su nombre en la configuración y la función texto → texto."""

    name: str
    apply: Callable[[str], str]


def _nfc(text: str) -> str:
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def _whitespace(text: str) -> str:
    """Sin espacios al final de línea ni en los extremos, y con dos líneas en blanco como mucho."""
    lines = "\n".join(map(str.rstrip, text.split("\n")))
    return (_BLANK.sub("\n\n\n", lines) if "\n\n\n\n" in lines else lines).strip()


CHANGES = (
    Change("line_ends", lambda text: _LINE_ENDS.sub("\n", text)),
    Change("control", lambda text: _CONTROL.sub("", text)),
    Change("invisible", lambda text: _INVISIBLE.sub("", text)),
    # Tras quitar lo invisible: una letra y su tilde pueden quedar por fin juntas.
    Change("nfc", _nfc),
    Change("whitespace", _whitespace),
)


def normalize(text: str) -> str:
    """El texto con todos los cambios de carácter aplicados."""
    for change in CHANGES:
        text = change.apply(text)
    return text


def normalize_characters(text: str) -> str:
    """Como `normalize`, sin tocar espacios: el principio que acaba en uno pide que siga ahí."""
    for change in CHANGES:
        text = text if change.name == "whitespace" else change.apply(text)
    return text
