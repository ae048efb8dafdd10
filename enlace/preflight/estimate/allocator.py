"""El asignador de memoria de torch en CUDA, en pequeño: qué *reserva* una serie de peticiones.

Lo que ocupa un entrenamiento en la tarjeta no es lo que pesan sus tensores sino lo que el asignador
reserva para ellos. Aquí está su regla, con las constantes de
`c10/cuda/CUDACachingAllocator.cpp` (torch 2.13, sin `expandable_segments`):

- cada petición se redondea a 512 bytes;
- hasta 1 MiB, sale de segmentos de 2 MiB; menos de 10 MiB, de segmentos de 20 MiB; lo demás, de un
  segmento propio redondeado a 2 MiB;
- se usa el bloque libre más pequeño que baste, y de dos iguales el de menor dirección;
- el sobrante de un bloque vuelve a la lista si llega a 512 bytes (en los pequeños) o pasa de 1 MiB;
- al soltar un bloque se une con los vecinos libres de su segmento; un segmento no se devuelve nunca
  salvo que falte memoria.

No se simulan flujos (streams) ni las direcciones de verdad.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

MIB = 1 << 20
ROUNDING = 512
SMALL_SIZE = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_LARGE_SIZE = 10 * MIB
LARGE_ROUNDING = 2 * MIB
_SEGMENT_GAP = 1 << 40
"""Distancia entre segmentos: mayor que cualquiera, para que ninguno parezca contiguo a otro."""


def rounded(size: int) -> int:
    """Lo que ocupa dentro de un segmento una petición de `size` bytes."""
    return max(ROUNDING, -(-size // ROUNDING) * ROUNDING)


def segment_size(size: int) -> int:
    """El segmento que se pide para un bloque ya redondeado que no cabe en ninguno."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_LARGE_SIZE:
        return LARGE_SEGMENT
    return -(-size // LARGE_ROUNDING) * LARGE_ROUNDING


@dataclass
class _Block:
    address: int
    size: int
    is_small: bool
    free: bool = False
    previous: "_Block | None" = None
    next: "_Block | None" = None

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address


class CachingAllocator:
    """Simula las peticiones una a una; `live` y `reserved` son los bytes de este momento."""

    def __init__(self) -> None:
        self.live = 0
        self.reserved = 0
        self._used: dict[int, _Block] = {}
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[int, _Block] = {}
        self._segments = 0

    def allocate(self, name: int, size: int) -> None:
        """Pide `size` bytes para el tensor `name`; cero bytes no ocupan nada."""
        if size == 0:
            return
        wanted = rounded(size)
        is_small = wanted <= SMALL_SIZE
        block = self._take(wanted, is_small) or self._new_segment(wanted, is_small)
        self._split(block, wanted)
        block.free = False
        self._used[name] = block
        self.live += block.size

    def release(self, name: int) -> None:
        """Suelta lo que tenía `name`; si no tenía nada, no hace nada."""
        block = self._used.pop(name, None)
        if block is None:
            return
        self.live -= block.size
        block.free = True
        if block.previous is not None and block.previous.free:
            self._forget(block.previous)
            block = self._merge(block.previous, block)
        if block.next is not None and block.next.free:
            self._forget(block.next)
            block = self._merge(block, block.next)
        insort(self._free[block.is_small], block.key)

    def _take(self, wanted: int, is_small: bool) -> _Block | None:
        pool = self._free[is_small]
        position = bisect_left(pool, (wanted, -1))
        if position == len(pool):
            return None
        return self._blocks[pool.pop(position)[1]]

    def _new_segment(self, wanted: int, is_small: bool) -> _Block:
        size = segment_size(wanted)
        block = _Block(self._segments * _SEGMENT_GAP, size, is_small)
        self._blocks[block.address] = block
        self._segments += 1
        self.reserved += size
        return block

    def _split(self, block: _Block, wanted: int) -> None:
        """Devuelve a la lista lo que sobra del bloque, si es bastante para otra petición."""
        left = block.size - wanted
        if left < ROUNDING if block.is_small else left <= SMALL_SIZE:
            return
        rest = _Block(block.address + wanted, left, block.is_small, True, block, block.next)
        if rest.next is not None:
            rest.next.previous = rest
        block.next = rest
        block.size = wanted
        self._blocks[rest.address] = rest
        insort(self._free[rest.is_small], rest.key)

    def _forget(self, block: _Block) -> None:
        pool = self._free[block.is_small]
        del pool[bisect_left(pool, block.key)]

    def _merge(self, left: _Block, right: _Block) -> _Block:
        left.size += right.size
        left.next = right.next
        if right.next is not None:
            right.next.previous = left
        del self._blocks[right.address]
        return left
