"""Una muestra del corpus de tamaño fijo, amplia y repetible, con memoria que no crece con él.

Cada pareja de origen y género recibe la misma cuota; la que cabe entera en la suya cede lo que le
sobra a las demás. Así un género corto entra completo y la fuente enorme no lo tapa: un vocabulario
entrenado con texto de un solo tipo trocea mal todo lo demás.
"""

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from enlace.data.corpus import CorpusDocument, read_corpus

# Los textos se eligen por los bits 64–75 del id: los 64 primeros ya decidieron el reparto.
_BIN_DIGITS = slice(16, 19)
_BINS = 1 << 12
_MAX_GROUPS = 256
_OTHERS = ("(otras)", "")

Group = tuple[str, str]
"""Origen y género."""


class SampledText(NamedTuple):
    """Un texto de la muestra, quizá cortado, con el grupo de su documento."""

    text: str
    group: Group


def sample_texts(corpus_dir: Path, split: str, budget: int) -> Iterator[SampledText]:
    """Textos de la parte `split` hasta `budget` bytes UTF-8, elegidos por el hash de su contenido.

    Dos pasadas: la primera suma bytes por grupo y casilla de hash; la segunda toma enteras las
    casillas que caben en la cuota del grupo y parte de la siguiente. El último texto de cada grupo
    se corta por un carácter.

    Raises:
        DataError: falta el corpus o está dañado.
    """
    sizes: dict[Group, array[int]] = {}
    for document in read_corpus(corpus_dir, split):
        group = _group(document, sizes)
        bins = sizes.setdefault(group, array("Q", bytes(8 * _BINS)))
        bins[_bin(document.id)] += len(document.text.encode("utf-8"))
    quotas = fair_quotas({group: sum(bins) for group, bins in sizes.items()}, budget)
    limits = {group: _limit(bins, quotas[group]) for group, bins in sizes.items()}
    left = {group: rest for group, (_, rest) in limits.items()}
    for document in read_corpus(corpus_dir, split):
        group = _group(document, sizes)
        position, boundary = _bin(document.id), limits[group][0]
        if position < boundary:
            yield SampledText(document.text, group)
        elif position == boundary and left[group]:
            content = document.text.encode("utf-8")[: left[group]]
            left[group] -= len(content)
            yield SampledText(content.decode("utf-8", errors="ignore"), group)


def fair_quotas(sizes: Mapping[Group, int], budget: int) -> dict[Group, int]:
    """Reparte `budget` a partes iguales; lo que a un grupo le sobra pasa a los mayores."""
    quotas: dict[Group, int] = {}
    for place, group in enumerate(sorted(sizes, key=lambda each: (sizes[each], each))):
        share = (budget - sum(quotas.values())) // (len(sizes) - place)
        quotas[group] = min(sizes[group], share)
    return quotas


def _group(document: CorpusDocument, known: Mapping[Group, object]) -> Group:
    group = (document.origin, document.genre)
    return group if group in known or len(known) < _MAX_GROUPS else _OTHERS


def _limit(bins: "array[int]", quota: int) -> tuple[int, int]:
    """La primera casilla que no cabe entera en la cuota, y los bytes que aún caben de ella."""
    boundary = 0
    while boundary < _BINS and bins[boundary] <= quota:
        quota -= bins[boundary]
        boundary += 1
    return boundary, quota


def _bin(identifier: str) -> int:
    return int(identifier[_BIN_DIGITS], 16)
