"""De un texto a resúmenes de 64 bits de sus palabras y de sus n-gramas de palabras.

Dos textos que solo se distinguen en mayúsculas, tildes, signos o espacios dan los mismos resúmenes:
lo que se compara al buscar repetidos y textos de evaluación es lo que se lee, no cómo está escrito.
"""

import re
import unicodedata
from functools import cache
from typing import cast

import numpy as np
import numpy.typing as npt
import xxhash

Hashes = npt.NDArray[np.uint64]

# Los signos que no están en latin-1: guiones, comillas, puntos suspensivos, flechas, viñetas…
_SIGNS = re.compile("[\u02b0-\u036f\u2000-\u206f\u2190-\u2bff\u3000-\u303f]+")
_SPACE = 0x20


def word_hashes(text: str) -> Hashes:
    """El resumen xxh3 de cada palabra de `text`, en orden: (palabras,) uint64.

    Una palabra es una serie de letras y cifras en minúscula y sin tildes ni eñes («Año» y «ano» son
    iguales). Fuera del alfabeto latino cada carácter cuenta como una palabra.
    """
    text = text.lower()
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    # Lo que no cabe en latin-1 queda como «&#20013;», que la tabla deja en «20013».
    coded = _SIGNS.sub(" ", text).encode("latin-1", "xmlcharrefreplace")
    words = coded.translate(_letters()).split()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, words), np.uint64, len(words))


def ngram_hashes(words: Hashes, ngram: int) -> Hashes:
    """El resumen de cada serie de `ngram` palabras seguidas, en orden.

    De (palabras,) a (palabras − ngram + 1,); con menos palabras que `ngram` la serie es el texto
    entero, y sin palabras no hay ninguna.
    """
    size = min(ngram, len(words))
    if size == 0:
        return words
    count = len(words) - size + 1
    mixed = words[:count]
    for position in range(1, size):
        mixed = mix(mixed) + words[position : position + count]
    return mix(mixed)


def mix(values: Hashes) -> Hashes:
    """El final de SplitMix64 (Steele, Lea y Flood, 2014): una biyección que revuelve los 64 bits.

    https://doi.org/10.1145/2714064.2660195
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(Hashes, values ^ (values >> np.uint64(31)))


@cache
def _letters() -> bytes:
    """Para cada byte latin-1, su letra sin tilde o su cifra; un espacio si es otra cosa."""
    table = bytearray()
    for code in range(256):
        base = unicodedata.normalize("NFD", chr(code).lower())[0]
        table.append(ord(base) if base.isalnum() and ord(base) < 256 else _SPACE)
    return bytes(table)
