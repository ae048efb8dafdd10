"""La búsqueda de textos de evaluación dentro de un documento."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from enlace.data.duplicates.shingles import Hashes, ngram_hashes
from enlace.data.preparation.evaluation_texts import SHORTEST, read_table

_FILTER_BITS = 22


class Hit(NamedTuple):
    """Un texto de evaluación hallado: su número y la parte de sus n-gramas que está aquí."""

    text: int
    overlap: float


class Searcher:
    """Busca en documentos los textos que dejó `index_evaluation` en una carpeta."""

    def __init__(self, folder: Path, ngram: int, min_overlap: float) -> None:
        """Abre las tablas; `ngram` y `min_overlap` son los de `data.contamination`."""
        self._ngram = ngram
        self._min_overlap = min_overlap
        self._grams = read_table(folder, "grams")
        self._owners = read_table(folder, "owners")
        self._counts = read_table(folder, "counts")
        self._anchors = read_table(folder, "anchors")
        self._lengths = read_table(folder, "lengths")
        self._wholes = read_table(folder, "wholes")
        self._shorts = read_table(folder, "shorts")
        self._gram_filter = _filter(self._grams)
        self._anchor_filter = _filter(self._anchors)

    def search(self, words: Hashes) -> list[Hit]:
        """Los textos que están en el documento de esas palabras, por su número.

        Un texto está si el documento contiene al menos `min_overlap` de sus n-gramas distintos, o
        entero si no llega a un n-grama.
        """
        shared = self._shared_grams(words)
        hits = [
            Hit(text, count / int(self._counts[text]))
            for text, count in shared.items()
            if count >= self._min_overlap * self._counts[text]
        ]
        hits += [Hit(text, 1.0) for text in self._shorts_in(words)]
        return sorted(hits)

    def _shared_grams(self, words: Hashes) -> Counter[int]:
        """Cuántos n-gramas distintos del documento tiene cada texto que tiene alguno."""
        if len(words) < self._ngram or not len(self._grams):
            return Counter()
        found = np.unique(_likely(ngram_hashes(words, self._ngram), self._gram_filter))
        left = np.searchsorted(self._grams, found, "left")
        right = np.searchsorted(self._grams, found, "right")
        shared: Counter[int] = Counter()
        for start, stop in zip(left.tolist(), right.tolist(), strict=True):
            shared.update(self._owners[start:stop].tolist())
        return shared

    def _shorts_in(self, words: Hashes) -> set[int]:
        if len(words) < SHORTEST or not len(self._anchors):
            return set()
        grams = ngram_hashes(words, SHORTEST)
        found = set()
        for position in np.flatnonzero(self._anchor_filter[_slots(grams)]).tolist():
            first = int(np.searchsorted(self._anchors, grams[position], "left"))
            last = int(np.searchsorted(self._anchors, grams[position], "right"))
            for candidate in range(first, last):
                length = int(self._lengths[candidate])
                window = words[position : position + length]
                if len(window) == length and (
                    ngram_hashes(window, length)[0] == self._wholes[candidate]
                ):
                    found.add(int(self._shorts[candidate]))
        return found


def _slots(hashes: Hashes) -> Hashes:
    return cast(Hashes, hashes >> np.uint64(64 - _FILTER_BITS))


def _filter(hashes: Hashes) -> np.typing.NDArray[np.bool_]:
    """Qué valores de los primeros bits hay en la tabla: descarta casi todo sin buscarlo."""
    present = np.zeros(1 << _FILTER_BITS, bool)
    present[_slots(hashes)] = True
    return present


def _likely(hashes: Hashes, present: np.typing.NDArray[np.bool_]) -> Hashes:
    return hashes[present[_slots(hashes)]]
