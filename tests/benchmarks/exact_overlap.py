"""Cuentas exactas entre conjuntos de n-gramas, para juzgar las estimaciones de las firmas."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from enlace.data.duplicates.shingles import Hashes, ngram_hashes

Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]

_PAIRS_AT_ONCE = 1 << 22


def jaccard(one: Hashes, other: Hashes) -> float:
    """El parecido de dos conjuntos ordenados y sin repetidos, entre 0 y 1."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)


def containment(inner: Hashes, outer: Hashes) -> float:
    """Qué parte de `inner` está en `outer`, entre 0 y 1; los dos, ordenados y sin repetidos."""
    return len(np.intersect1d(inner, outer, assume_unique=True)) / len(inner)


def common_grams(grams: list[Hashes]) -> Pairs:
    """Las parejas (i < j) que tienen algún n-grama en común y su Jaccard exacto: tres (P,)."""
    sizes = np.array([len(each) for each in grams], np.int64)
    owners = np.repeat(np.arange(len(grams)), sizes)
    values = np.concatenate(grams)
    order = np.argsort(values, kind="stable")  # dentro de cada n-grama, por documento
    values, owners = values[order], owners[order]
    equal = values[1:] == values[:-1]
    shared = np.append(equal, False) | np.insert(equal, 0, False)
    values, owners = values[shared], owners[shared]
    counted: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    step = 1
    # La pareja de dos documentos con el mismo n-grama está a distancia `step` por cada repetición.
    while (same := np.flatnonzero(values[step:] == values[:-step])).size:
        for start in range(0, len(same), _PAIRS_AT_ONCE):
            piece = same[start : start + _PAIRS_AT_ONCE]
            keys = owners[piece] * len(grams) + owners[piece + step]
            counted.append(np.unique(keys, return_counts=True))
        step += 1
        if len(counted) > 64:
            counted = [_added(counted)]
    keys, common = _added(counted)
    first, second = keys // len(grams), keys % len(grams)
    return first, second, common / (sizes[first] + sizes[second] - common)


def _added(
    parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    keys = np.concatenate([np.empty(0, np.int64), *(each for each, _ in parts)])
    counts = np.concatenate([np.empty(0, np.int64), *(each for _, each in parts)])
    unique, places = np.unique(keys, return_inverse=True)
    return unique, np.bincount(places, counts, len(unique)).astype(np.int64)


def pieces_like(pieces: list[Hashes], edition: Hashes, ngram: int) -> list[Hashes]:
    """La otra edición cortada donde empieza en ella cada trozo: a lo más, uno por trozo.

    Un trozo cuyas primeras palabras no están, o están más de una vez, no corta.
    """
    grams = ngram_hashes(edition, ngram)
    cuts = []
    for piece in pieces:
        places = np.flatnonzero(grams == ngram_hashes(piece[:ngram], ngram)[0])
        if len(places) == 1:
            cuts.append(int(places[0]))
    cuts = sorted({*cuts, 0, len(edition)})
    return [edition[start:end] for start, end in pairwise(cuts)]
