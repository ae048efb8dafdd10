"""Documentos cuyo texto ya está en otros: el capítulo de un libro que también está entero.

El parecido de Jaccard entre un trozo y la obra de la que sale es pequeño, así que MinHash no los
junta. Aquí se guarda una muestra de los n-gramas de cada documento, los mismos para el mismo texto
esté donde esté (los de resumen menor que 2^64/`contained_sample`; es FracMinHash, Irber et al.,
2022, https://doi.org/10.1101/2022.01.11.475838), y los documentos se recorren del más largo al más
corto: se queda fuera el que tiene en otros que se quedan al menos `contained_share` de su muestra.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.corpus import DedupConfig
from enlace.data.duplicates.shingles import Hashes
from enlace.data.duplicates.union import Indices

LEAST = 8
"""N-gramas de la muestra sin los que un documento no se juzga: es demasiado corto."""
_AT_ONCE = 1 << 20


class Passages(NamedTuple):
    """La muestra de N documentos, seguida: `values` (T,) uint64 y `counts` (N,) cuántos tiene."""

    values: Hashes
    counts: npt.NDArray[np.integer]


class Containment(NamedTuple):
    """Lo que se halla: los documentos que sobran y los que comparten bastante para no separarse.

    `dropped` y `containers` (M,): cada documento que sobra y el que más texto suyo tiene.
    `first` y `second` (P,): las parejas de parientes.
    """

    dropped: Indices
    containers: Indices
    first: Indices
    second: Indices


def sample(grams: Hashes, config: DedupConfig) -> Hashes:
    """Los n-gramas de la muestra, de entre unos distintos."""
    return grams[grams < np.uint64(2**64 // config.contained_sample)]


def find_contained(
    passages: Passages, order: Indices, alive: npt.NDArray[np.bool_], config: DedupConfig
) -> Containment:
    """Recorre en `order` los documentos de `alive` y dice cuáles sobran y quién los contiene."""
    places, groups, count = _shared(passages, alive)
    owners = np.full(count, -1, np.int64)
    ends = np.cumsum(passages.counts, dtype=np.int64)
    firsts, lasts = np.searchsorted(places, ends - passages.counts), np.searchsorted(places, ends)
    share = min(config.contained_share, config.split_threshold)
    dropped, relatives = list[tuple[int, int]](), list[tuple[int, int]]()
    for document in order[alive[order]].tolist():
        mine = groups[firsts[document] : lasts[document]]
        total = int(passages.counts[document])
        if not len(mine):
            continue
        held = owners[mine]
        others = Counter(held[held >= 0].tolist())
        if others and total >= LEAST:
            relatives += [(document, each) for each, n in others.items() if n >= share * total]
            if sum(others.values()) >= config.contained_share * total:
                # A igualdad, el de menor número: los números siguen el orden de las rutas.
                most = min(others, key=lambda each: (-others[each], each))
                dropped.append((document, most))
                continue
        owners[mine[held < 0]] = document
    gone, containers = np.array(dropped, np.int64).reshape(-1, 2).T
    first, second = np.array(relatives, np.int64).reshape(-1, 2).T
    return Containment(gone, containers, first, second)


class _Shared(NamedTuple):
    """Los n-gramas de la muestra que tienen dos documentos o más.

    `places` (S,) int64 en orden creciente: sus posiciones en `Passages.values`; `groups` (S,)
    int32: el número de cada n-grama; `distinct`: cuántos hay.
    """

    places: Indices
    groups: npt.NDArray[np.int32]
    distinct: int


def _shared(passages: Passages, alive: npt.NDArray[np.bool_]) -> _Shared:
    """Busca los n-gramas compartidos por partes según el valor.

    Cada parte se ordena en memoria y no crece con el corpus; la muestra puede estar en disco.
    """
    parts = 1 + len(passages.values) // _AT_ONCE
    places, groups, count = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 0
    for part in range(parts):
        found = _values_of(passages, alive, part, parts)
        order = np.argsort(found.values, kind="stable")
        ordered = found.values[order]
        new = np.ones(len(order), bool)
        new[1:] = ordered[1:] != ordered[:-1]
        runs = np.cumsum(new) - 1
        shared = np.bincount(runs, minlength=1)[runs] > 1
        numbers = np.cumsum(new & shared) - 1 + count
        places.append(found.places[order[shared]])
        groups.append(numbers[shared].astype(np.int32))
        count += int((new & shared).sum())
    joined = np.concatenate(places)
    order = np.argsort(joined)
    return _Shared(joined[order], np.concatenate(groups)[order], count)


class _Values(NamedTuple):
    places: Indices
    values: Hashes


def _values_of(passages: Passages, alive: npt.NDArray[np.bool_], part: int, parts: int) -> _Values:
    """Los n-gramas de los documentos de `alive` que son de una parte, y sus posiciones."""
    ends = np.cumsum(passages.counts, dtype=np.int64)
    places, values = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    document, start = 0, 0
    while document < len(ends):
        stop = max(document + 1, int(np.searchsorted(ends, start + _AT_ONCE, "right")))
        end = int(ends[stop - 1])
        block = np.asarray(passages.values[start:end])
        judged = np.repeat(alive[document:stop], passages.counts[document:stop])
        chosen = np.flatnonzero(judged & (block % np.uint64(parts) == part))
        places.append(chosen + start)
        values.append(block[chosen])
        document, start = stop, end
    return _Values(np.concatenate(places), np.concatenate(values))
