"""Qué documentos se repiten, cuál de cada grupo se queda y qué grupos no se separan.

Todo lo que se decide depende del conjunto de documentos y no del orden en que llegaron:

1. Son *iguales* los documentos con el mismo id. Se queda el de la fuente que va antes en
   `data.sources` (las que no están en la lista van después) y, entre esos, el de la primera ruta.
2. Son *casi iguales* los que coinciden en `threshold` o más de su firma, y los que lo son a través
   de un tercero. Se queda el de la fuente que va antes; después, el más largo; después, el de menor
   id.
3. Están *contenidos* los que tienen en otros más largos `contained_share` o más de su texto. Se
   quedan fuera aunque su fuente vaya antes: nada de lo que dicen se pierde.
4. Son *parientes* los que coinciden en `split_threshold` o más, y también se heredan. Un grupo de
   parientes va entero a la misma parte, la que le toca a su representante: el miembro cuyos
   últimos 64 bits de id son menores (los primeros deciden la parte y no deben decidir quién la
   elige).

La memoria es de unas decenas de bytes por documento: las firmas y las claves están en disco.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.corpus import DedupConfig
from enlace.data.duplicates.passages import Passages, find_contained
from enlace.data.duplicates.shingles import Hashes
from enlace.data.duplicates.signatures import Signatures
from enlace.data.duplicates.union import DisjointSets, Indices

KEPT, EXACT, NEAR, CONTAINED = 0, 1, 2, 3

_MAX_LEADERS = 64
"""Comparaciones por documento en cada banda: acota las plantillas que se repiten por miles."""
_PAIRS_AT_ONCE = 1 << 14


class Fingerprints(NamedTuple):
    """Lo que hay que saber de N documentos para encontrar repetidos.

    `ids` (N, 2) uint64: las dos mitades del id. `ranks` (N,): el puesto de su fuente. `sizes` (N,):
    bytes de texto. `signatures` (N, bands·rows) uint32. `keys`: la función de la banda a sus N
    claves uint64, 0 en los documentos sin palabras. `passages`: su muestra de n-gramas.
    """

    ids: Hashes
    ranks: npt.NDArray[np.integer]
    sizes: npt.NDArray[np.integer]
    signatures: Signatures
    keys: Callable[[int], Hashes]
    passages: Passages


class Resolution(NamedTuple):
    """La decisión para cada uno de N documentos.

    `verdicts` (N,) uint8: KEPT, EXACT, NEAR o CONTAINED. `keepers` (N,) int64: el documento que se
    queda de su grupo (él mismo si es él). `deciders` (N,) int64: el representante de sus parientes.
    """

    verdicts: npt.NDArray[np.uint8]
    keepers: Indices
    deciders: Indices


def resolve(documents: Fingerprints, config: DedupConfig) -> Resolution:
    """Decide qué documentos se quedan y quién decide la parte de cada uno."""
    count = len(documents.ids)
    same, relatives = DisjointSets(count), DisjointSets(count)
    first = _first_of_equals(documents)
    copies = np.flatnonzero(first != np.arange(count))
    same.join(copies, first[copies])
    relatives.join(copies, first[copies])
    for band in range(config.bands):
        _join_band(documents, documents.keys(band), same, relatives, config)
    verdicts = np.full(count, KEPT, np.uint8)
    keepers: Indices = np.arange(count, dtype=np.int64)
    if config.exact:
        verdicts[copies] = EXACT
        keepers = first
    if config.near:
        left = np.flatnonzero(verdicts == KEPT)
        best = _best_of(documents, same.all_roots(), left)
        verdicts[left[best[left] != left]] = NEAR
        keepers = best[keepers]
    found = find_contained(documents.passages, _longest(documents), verdicts == KEPT, config)
    relatives.join(found.first, found.second)
    if config.contained:
        verdicts[found.dropped] = CONTAINED
        container: Indices = np.arange(count, dtype=np.int64)
        container[found.dropped] = found.containers
        keepers = container[keepers]
    return Resolution(verdicts, keepers, _deciders(documents.ids, relatives.all_roots()))


def similarity(signatures: Signatures, first: Indices, second: Indices) -> npt.NDArray[np.float64]:
    """La parte de la firma en que coincide cada pareja: (N,) entre 0 y 1."""
    matches = np.empty(len(first), np.float64)
    for start in range(0, len(first), _PAIRS_AT_ONCE):
        piece = slice(start, start + _PAIRS_AT_ONCE)
        equal = signatures[first[piece]] == signatures[second[piece]]
        matches[piece] = equal.mean(axis=1)
    return matches


def _first_of_equals(documents: Fingerprints) -> Indices:
    """Para cada documento, el que se queda de entre los de su mismo id."""
    high, low = documents.ids[:, 0], documents.ids[:, 1]
    order = np.lexsort((documents.ranks, low, high))  # estable: a igualdad, el orden de las rutas
    new = np.ones(len(order), bool)
    new[1:] = np.any(documents.ids[order[1:]] != documents.ids[order[:-1]], axis=1)
    return _spread_first(order, new)


def _best_of(documents: Fingerprints, roots: Indices, left: Indices) -> Indices:
    """Para cada documento de `left`, el mejor de su conjunto; los demás, ellos mismos."""
    ids = documents.ids[left]
    sizes = documents.sizes[left].astype(np.int64)
    order = np.lexsort((ids[:, 1], ids[:, 0], -sizes, documents.ranks[left], roots[left]))
    new = np.diff(roots[left][order], prepend=-1) != 0
    best: Indices = np.arange(len(documents.ids), dtype=np.int64)
    best[left] = left[_spread_first(order, new)]
    return best


def _longest(documents: Fingerprints) -> Indices:
    """Los documentos del más largo al más corto; a igualdad, por id."""
    ids = documents.ids
    order = np.lexsort((ids[:, 1], ids[:, 0], -documents.sizes.astype(np.int64)))
    return order.astype(np.int64)


def _deciders(ids: Hashes, roots: Indices) -> Indices:
    order = np.lexsort((ids[:, 0], ids[:, 1], roots))
    return _spread_first(order, np.diff(roots[order], prepend=-1) != 0)


def _spread_first(order: Indices, new: npt.NDArray[np.bool_]) -> Indices:
    """Para cada elemento de `order`, el primero de su serie; `new` marca dónde empieza cada una."""
    heads = order[new]
    result = np.empty(len(order), np.int64)
    result[order] = heads[np.cumsum(new) - 1]
    return result


def _join_band(
    documents: Fingerprints,
    keys: Hashes,
    same: DisjointSets,
    relatives: DisjointSets,
    config: DedupConfig,
) -> None:
    """Compara los documentos que comparten la clave de una banda y une los que se parecen.

    En cada ronda, el de menor id de los que quedan con cada clave se compara con los demás; los que
    son casi iguales a él ya tienen su grupo y no siguen.
    """
    members, runs = _collisions(keys, documents.ids)
    for _ in range(_MAX_LEADERS):
        if not len(members):
            return
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        sizes = np.diff(starts, append=len(runs))
        leaders = np.repeat(members[starts], sizes)
        waiting = np.ones(len(members), bool)
        waiting[starts] = False
        unknown = waiting & (same.roots(members) != same.roots(leaders))
        first, second = leaders[unknown], members[unknown]
        alike = similarity(documents.signatures, first, second)
        related = alike >= min(config.split_threshold, config.threshold)
        equal = alike >= config.threshold
        relatives.join(first[related], second[related])
        same.join(first[equal], second[equal])
        waiting &= same.roots(members) != same.roots(leaders)
        members, runs = members[waiting], runs[waiting]


def _collisions(keys: Hashes, ids: Hashes) -> tuple[Indices, Indices]:
    """Los documentos que comparten clave con otro, por clave y por id, y el número de su clave."""
    order = np.lexsort((ids[:, 0], keys))
    ordered = keys[order]
    new = np.ones(len(order), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    runs = np.cumsum(new)
    shared = (np.bincount(runs)[runs] > 1) & (ordered != 0)
    return order[shared], runs[shared]
