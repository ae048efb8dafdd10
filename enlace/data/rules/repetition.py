"""Documentos que se repiten por dentro: líneas, párrafos y n-gramas (Gopher, tabla A1).

Los n-gramas se cuentan con huellas de 64 bits: cada palabra es un número y cada n-grama, un
polinomio de sus palabras. Todo es lineal salvo la ordenación de las huellas.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from enlace.config.corpus import RepetitionRule
from enlace.data.documents import Document

_LONG = 10  # palabras de los n-gramas en los que se mira todo lo repetido
_BASE = np.uint64(0x9E3779B97F4A7C15)


def repetition_reason(rule: RepetitionRule) -> Callable[[Document], str | None]:
    """Por qué un documento se repite demasiado."""
    tops = (
        (2, rule.max_top_bigram_share),
        (3, rule.max_top_trigram_share),
        (4, rule.max_top_fourgram_share),
    )

    def reason(document: Document) -> str | None:
        text = document.text
        lines = [line for raw in text.split("\n") if (line := raw.strip())]
        share = _duplicate_share(lines)
        if share > rule.max_duplicate_line_share:
            return f"{share:.2f} de los caracteres están en líneas repetidas"
        share = _duplicate_share([part for raw in text.split("\n\n") if (part := raw.strip())])
        if share > rule.max_duplicate_paragraph_share:
            return f"{share:.2f} de los caracteres están en párrafos repetidos"
        words = text.split()
        if len(words) < rule.min_words:
            return None
        ids, lengths = _numbered(words)
        total, longest = int(lengths.sum()), int(lengths.max())
        most = len(words)
        for size, limit in tops:
            # Un trigrama no puede repetirse más que el bigrama más repetido.
            if most * size * longest <= limit * total:
                continue
            most, share = _top_share(ids, lengths, size, total)
            if share > limit:
                return f"{share:.2f} de los caracteres son un mismo grupo de {size} palabras"
        share = _repeated_share(ids, lengths, total)
        if share > rule.max_duplicate_ngram_share:
            return f"{share:.2f} de los caracteres están en grupos de {_LONG} palabras repetidos"
        return None

    return reason


def _duplicate_share(parts: list[str]) -> float:
    """Parte de los caracteres que está en elementos ya vistos."""
    if len(set(parts)) == len(parts):
        return 0.0
    seen: set[str] = set()
    repeated = 0
    for part in parts:
        if part in seen:
            repeated += len(part)
        seen.add(part)
    return repeated / sum(map(len, parts))


def _numbered(words: list[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Un número por palabra distinta (uint64) y la longitud de cada palabra (int64)."""
    table: dict[str, int] = {}
    ids = np.fromiter((table.setdefault(word, len(table)) for word in words), np.uint64, len(words))
    return ids, np.fromiter(map(len, words), np.int64, len(words))


def _hashes(ids: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Huella de cada n-grama de `size` palabras; uint64 de longitud n − size + 1."""
    count = len(ids) - size + 1
    result = np.zeros(max(count, 0), np.uint64)
    for offset in range(size if count > 0 else 0):
        result = result * _BASE + ids[offset : offset + count] + np.uint64(1)
        result ^= result >> np.uint64(29)
    return result


def _top_share(
    ids: NDArray[np.uint64], lengths: NDArray[np.int64], size: int, total: int
) -> tuple[int, float]:
    """Apariciones del n-grama más repetido y parte de los caracteres que ocupa."""
    hashes = _hashes(ids, size)
    if not len(hashes):
        return 0, 0.0
    ordered = np.sort(hashes)
    edges = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1], True])
    counts = np.diff(edges)
    best = int(counts.argmax())
    count = int(counts[best])
    if count < 2:
        return count, 0.0
    start = int((hashes == ordered[edges[best]]).argmax())
    return count, int(lengths[start : start + size].sum()) * count / total


def _repeated_share(ids: NDArray[np.uint64], lengths: NDArray[np.int64], total: int) -> float:
    """Parte de los caracteres que está en n-gramas largos ya vistos."""
    hashes = _hashes(ids, _LONG)
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return 0.0
    _, first = np.unique(hashes, return_index=True)
    again = np.ones(len(hashes), bool)
    again[first] = False
    covered = np.zeros(len(ids) + 1, np.int64)
    starts = np.flatnonzero(again)
    np.add.at(covered, starts, 1)
    np.add.at(covered, starts + _LONG, -1)
    inside = covered.cumsum()[:-1] > 0
    return int(lengths[inside].sum()) / total
