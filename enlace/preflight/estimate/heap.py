"""El montón de glibc, en pequeño: cuánta RAM retiene un proceso que pide y suelta tensores.

En CPU torch pide cada tensor a `malloc`. Los mayores que un umbral vienen de `mmap` y vuelven
enteros al sistema; los demás salen de un montón que solo mengua por arriba, así que los huecos que
dejan siguen siendo RAM del proceso. El umbral empieza en 128 KiB y sube hasta el mayor bloque de
`mmap` soltado, con tope en 32 MiB (`malloc/malloc.c` de glibc, «dynamic mmap threshold»): por eso
un entrenamiento acaba con casi todo en el montón.

Se usa el hueco más pequeño que baste, los vecinos libres se unen, y lo libre de arriba se devuelve
si pasa del doble del umbral. Se supone que todo lo pedido se llega a tocar.

`posix_memalign` pide de más para alinear y devuelve dos sobrantes de menos de 100 bytes, justo a
los lados del tensor. Algunos los ocupan objetos pequeños de vida larga (nodos del grafo, objetos de
Python), que ya no dejan que el hueco se una con el de al lado: un hueco así no vuelve a servir para
un tensor del mismo tamaño. De ahí sale casi todo lo que un entrenamiento en CPU gasta de más. Con
`MALLOC_MMAP_THRESHOLD_=131072` no pasa, y lo medido es lo vivo.
"""

from bisect import bisect_left, insort
from collections import deque

KIB = 1 << 10
ALIGNMENT = 64
_HEADER = 16
_MIN_CHUNK = 32
PAGE = 4 * KIB
MMAP_THRESHOLD = 128 * KIB
MAX_MMAP_THRESHOLD = 32 << 20
PINNED_EVERY = 10
"""Uno de cada cuántos sobrantes ocupa un objeto pequeño."""
MAX_PINS = 275
"""Cuántos hay ocupados a la vez; después se suelta el más viejo. Las dos cifras se ajustaron a las
medidas de docs/preflight.md: no salen de glibc."""


class Heap:
    """Simula las peticiones una a una; `live` y `reserved` son los bytes de este momento."""

    def __init__(self) -> None:
        self.live = 0
        self._mapped = 0
        self._top = 0
        self._leftovers = 0
        self._pins: deque[tuple[int, int]] = deque()
        self._threshold = MMAP_THRESHOLD
        self._used: dict[int, tuple[int | None, int]] = {}
        self._free: list[tuple[int, int]] = []
        self._start: dict[int, int] = {}
        self._end: dict[int, int] = {}

    @property
    def reserved(self) -> int:
        """RAM del proceso: lo que vino de `mmap` y el montón hasta su parte más alta en uso."""
        return self._mapped + self._top

    def allocate(self, name: int, size: int) -> None:
        """Pide `size` bytes para el tensor `name`; cero bytes no ocupan nada."""
        if size == 0:
            return
        self.live += size
        if size >= self._threshold:
            size = -(-size // PAGE) * PAGE
            self._mapped += size
            self._used[name] = (None, size)
            return
        size = -(-(size + _HEADER // 2) // _HEADER) * _HEADER
        self._used[name] = (self._place(size), size)

    def release(self, name: int, size: int) -> None:
        """Suelta lo que tenía `name`, que pidió `size` bytes; si no tenía nada, no hace nada."""
        address, taken = self._used.pop(name, (None, 0))
        if not taken:
            return
        self.live -= size
        if address is None:
            self._mapped -= taken
            if taken <= MAX_MMAP_THRESHOLD:
                self._threshold = max(self._threshold, taken)
            return
        self._give_back(address, taken)

    def _place(self, size: int) -> int:
        """Un trozo alineado de `size` bytes; lo que sobra a los dos lados vuelve a la lista."""
        wanted = size + ALIGNMENT + _MIN_CHUNK
        position = bisect_left(self._free, (wanted, -1))
        if position == len(self._free):
            hole, address = self._top_hole(wanted)
        else:
            hole, address = self._free.pop(position)
            self._unlink(address, hole)
        start = address + (-(address + _HEADER)) % ALIGNMENT
        if 0 < start - address < _MIN_CHUNK:
            start += ALIGNMENT
        end, rest = start + size, address + hole - start - size
        if start > address:
            self._leave(address, start - address, start - address)
        if rest:
            self._leave(end, rest, min(rest, ALIGNMENT))
        return start

    def _leave(self, address: int, size: int, pin: int) -> None:
        """Devuelve un sobrante, o todo menos los `pin` bytes que ocupa un objeto pequeño."""
        self._leftovers += 1
        if self._leftovers % PINNED_EVERY == 0:
            self._pins.append((address, pin))
            address, size = address + pin, size - pin
        if size:
            self._link(address, size)
        if len(self._pins) > MAX_PINS:
            self._give_back(*self._pins.popleft())

    def _top_hole(self, wanted: int) -> tuple[int, int]:
        """Sube la cima lo que falte; si arriba del todo hay un hueco, se aprovecha."""
        address = self._top
        if address in self._end:
            address = self._end[address]
            self._remove(address, self._start[address])
        self._top = address + wanted
        return wanted, address

    def _give_back(self, address: int, size: int) -> None:
        if address in self._end:
            before = self._end[address]
            hole = self._start[before]
            self._remove(before, hole)
            address, size = before, size + hole
        after = self._start.get(address + size)
        if after is not None:
            self._remove(address + size, after)
            size += after
        if address + size == self._top and size > 2 * self._threshold:
            self._top = address
        else:
            self._link(address, size)

    def _link(self, address: int, size: int) -> None:
        insort(self._free, (size, address))
        self._start[address] = size
        self._end[address + size] = address

    def _unlink(self, address: int, size: int) -> None:
        del self._start[address]
        del self._end[address + size]

    def _remove(self, address: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, address))]
        self._unlink(address, size)
