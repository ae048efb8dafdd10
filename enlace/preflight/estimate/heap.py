"""El montón de glibc, en pequeño: cuánta RAM retiene un proceso que pide y suelta tensores.

En CPU torch pide cada tensor a `malloc`. Los mayores que un umbral vienen de `mmap` y vuelven
enteros al sistema; los demás salen de un montón que solo mengua por arriba, así que los huecos que
dejan siguen siendo RAM del proceso. El umbral empieza en 128 KiB y sube hasta el mayor bloque de
`mmap` soltado, con tope en 32 MiB (`malloc/malloc.c` de glibc, «dynamic mmap threshold»): por eso
un entrenamiento acaba con casi todo en el montón.

Se usa el hueco más pequeño que baste y los vecinos libres se unen. Lo libre de arriba del todo solo
se usa si no basta ningún hueco, y se devuelve si pasa del doble del umbral. Se supone que todo lo
pedido se llega a tocar.

De ahí no saldría casi nada de más. Lo que de verdad se gasta sale de los sobrantes:
`posix_memalign` pide `ALIGNMENT` y pico de más para alinear y devuelve lo que sobra, dos trozos que
suman `SPARE` bytes, a los lados del tensor. Esos trozos miden lo mismo que los objetos de C++
(`objects`), y glibc los entrega al siguiente que pida ese tamaño, del último al primero, desde una
caché por hilo cuyos trozos nunca se unen con los vecinos (`tcache`). Así un objeto que vive mucho
acaba junto a un tensor que murió, y el hueco de este se queda sin el sobrante que haría falta para
alinear en él un tensor igual.
Recorrer el montón de un entrenamiento lo enseña: huecos del tamaño exacto de una activación con un
trozo de 48 o 112 bytes en uso detrás. Con `MALLOC_MMAP_THRESHOLD_=131072` no hay montón, y lo
medido es lo vivo.
"""

from bisect import bisect_left, insort

KIB = 1 << 10
ALIGNMENT = 64
CHUNK_STEP = 16
_MIN_CHUNK = 32
PAGE = 4 * KIB
MMAP_THRESHOLD = 128 * KIB
MAX_MMAP_THRESHOLD = 32 << 20
_UNREACHABLE = 1 << 62
SPARE = ALIGNMENT + _MIN_CHUNK + CHUNK_STEP
"""Lo que `posix_memalign` pide además del tensor, con la cabecera y el redondeo a 16 bytes."""
CACHED_CHUNKS = 7
"""Los trozos de cada tamaño que guarda la caché de un hilo (`TCACHE_FILL_COUNT`)."""


class Heap:
    """Simula las peticiones una a una; `live` y `reserved` son los bytes de este momento.

    `start` es la dirección donde empieza el montón: cambia qué sobra a cada lado de cada tensor.
    Con `keeps` todo sale del montón y nada vuelve al sistema (`hardware.host_allocator: keep`).
    """

    def __init__(self, start: int = 0, *, keeps: bool = False) -> None:
        self.live = 0
        self._mapped = 0
        self._top = self._touched = start
        self._threshold = _UNREACHABLE if keeps else MMAP_THRESHOLD
        self._used: dict[int, tuple[int | None, int]] = {}
        self._free: list[tuple[int, int]] = []
        self._start: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._objects: dict[int, tuple[int, int]] = {}
        self._cached: dict[int, list[int]] = {}

    @property
    def reserved(self) -> int:
        """RAM del proceso: lo que vino de `mmap` y el montón hasta donde se ha tocado."""
        return self._mapped + self._touched

    def allocate(self, name: int, size: int) -> None:
        """Pide `size` bytes para el tensor `name`; cero bytes no ocupan nada."""
        if size == 0:
            return
        self.live += size
        taken = -(-(size + CHUNK_STEP // 2) // CHUNK_STEP) * CHUNK_STEP
        if taken + SPARE >= self._threshold:
            taken = -(-(taken + SPARE) // PAGE) * PAGE
            self._mapped += taken
            self._used[name] = (None, taken)
        else:
            self._used[name] = self._place(taken)

    def allocate_object(self, name: int, size: int) -> None:
        """Pide para el objeto `name` un trozo de `size` bytes, con su cabecera; no es `live`."""
        self._objects[name] = self._object(size)

    def release_object(self, name: int) -> None:
        """Suelta el objeto `name`; si no existe, no hace nada."""
        chunk = self._objects.pop(name, None)
        if chunk is not None:
            self._discard(*chunk)

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
        else:
            self._give_back(address, taken)

    def _place(self, size: int) -> tuple[int, int]:
        """Un trozo alineado de `size` bytes; lo que sobra a los dos lados se suelta.

        Detrás solo si es más que el menor trozo: si no, se queda en este.
        """
        wanted = size + SPARE
        address, hole = self._hole(wanted)
        start = address + (-(address + CHUNK_STEP)) % ALIGNMENT
        if 0 < start - address < _MIN_CHUNK:
            start += ALIGNMENT
        end, before = start + size, start - address
        after = wanted - before - size
        rest = hole - wanted
        if rest < _MIN_CHUNK:
            after, rest = after + rest, 0
        if rest:
            self._link(end + after, rest)
        if before:
            self._discard(address, before)
        if after <= _MIN_CHUNK:
            return start, size + after
        self._discard(end, after)
        return start, size

    def _object(self, size: int) -> tuple[int, int]:
        """Un trozo para un objeto: de la caché o, si no hay, del hueco más pequeño que baste."""
        if self._cached.get(size):
            return self._cached[size].pop(), size
        address, hole = self._hole(size)
        if hole - size < _MIN_CHUNK:
            return address, hole
        self._link(address + size, hole - size)
        return address, size

    def _discard(self, address: int, size: int) -> None:
        """Suelta un trozo pequeño: a la caché si le queda sitio, donde no se une a sus vecinos."""
        cached = self._cached.setdefault(size, [])
        if len(cached) < CACHED_CHUNKS:
            cached.append(address)
        else:
            self._give_back(address, size)

    def _hole(self, wanted: int) -> tuple[int, int]:
        """Dirección y tamaño del menor hueco que baste, que deja de estar libre."""
        position = bisect_left(self._free, (wanted, -1))
        if position < len(self._free):
            hole, address = self._free.pop(position)
            self._unlink(address, hole)
            return address, hole
        address = self._top
        self._top = address + wanted
        self._touched = max(self._touched, self._top)
        return address, wanted

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
        if address + size != self._top:
            self._link(address, size)
            return
        self._top = address
        if self._touched - address > 2 * self._threshold:
            self._touched = address

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
