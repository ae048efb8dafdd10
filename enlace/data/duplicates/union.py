"""Conjuntos disjuntos de enteros: quién está con quién después de unir parejas."""

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class DisjointSets:
    """Conjuntos de los enteros 0…count−1, al principio de uno en uno; 8 bytes por entero."""

    def __init__(self, count: int) -> None:
        self._parent: Indices = np.arange(count, dtype=np.int64)

    def join(self, first: Indices, second: Indices) -> None:
        """Une cada `first[i]` con `second[i]`: dos (N,) int64."""
        for one, other in zip(first.tolist(), second.tolist(), strict=True):
            low, high = sorted((self._root(one), self._root(other)))
            self._parent[high] = low

    def roots(self, members: Indices) -> Indices:
        """El menor elemento del conjunto de cada uno de `members`, con la misma forma."""
        found = self._parent[members]
        while True:
            above = self._parent[found]
            if np.array_equal(above, found):
                return found
            found = above

    def all_roots(self) -> Indices:
        """El menor elemento del conjunto de cada entero: (count,) int64."""
        while True:
            above = self._parent[self._parent]
            if np.array_equal(above, self._parent):
                return self._parent
            self._parent = above

    def _root(self, member: int) -> int:
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = int(parent[member])
        return member
