import random

import pytest

from enlace.preflight.estimate.heap import EVERY_OTHER, KIB, MMAP_THRESHOLD, OBJECTS, Heap

OBJECT_BYTES = sum(OBJECTS + EVERY_OTHER)
SIZE = 100_000


def test_lo_que_viene_de_mmap_se_devuelve_y_los_huecos_se_retienen() -> None:
    heap = Heap()
    heap.allocate(1, MMAP_THRESHOLD)
    assert MMAP_THRESHOLD < heap.reserved <= MMAP_THRESHOLD + OBJECT_BYTES
    heap.release(1, MMAP_THRESHOLD)
    assert heap.live == 0
    assert heap.reserved <= OBJECT_BYTES
    # El umbral ha subido: lo menor que lo soltado ya sale del montón.
    heap.allocate(2, 64_000)
    heap.allocate(3, 64_000)
    before = heap.reserved
    assert 128_000 < before < 128_000 + 4 * KIB
    heap.release(2, 64_000)
    assert (heap.live, heap.reserved) == (64_000, before)


def test_lo_que_pasa_de_32_mib_nunca_sube_el_umbral() -> None:
    heap = Heap()
    heap.allocate(1, 64 << 20)
    heap.release(1, 64 << 20)
    heap.allocate(2, MMAP_THRESHOLD)
    heap.release(2, MMAP_THRESHOLD)
    assert heap.reserved <= OBJECT_BYTES


def test_el_monton_mengua_por_arriba_salvo_que_la_cache_lo_impida() -> None:
    shrunk, stuck = Heap(), Heap()
    for heap, order in ((shrunk, range(40)), (stuck, reversed(range(40)))):
        for name in range(40):
            heap.allocate(name, SIZE)
        for name in order:
            heap.release(name, SIZE)
        assert heap.live == 0
    # La caché guarda los primeros objetos que se sueltan: abajo, o justo en la cima.
    assert shrunk.reserved < 32 * SIZE
    assert stuck.reserved > 40 * SIZE


def test_un_tensor_que_vive_mucho_estropea_el_hueco_de_otro_que_murio() -> None:
    """Como al entrenar: cada activación guardada nace con una temporal del mismo tamaño al lado."""
    heap = Heap()
    for name in range(0, 200, 2):
        heap.allocate(name, SIZE)
        heap.allocate(name + 1, SIZE)
        heap.release(name, SIZE)
    assert heap.live == 100 * SIZE
    assert heap.reserved > 1.1 * (heap.live + 100 * OBJECT_BYTES)


def test_repetir_una_peticion_deja_de_pedir_memoria_cuando_la_cache_se_llena() -> None:
    heap, seen = Heap(), []
    for name in range(60):
        heap.allocate(name, SIZE)
        heap.release(name, SIZE)
        seen.append(heap.reserved)
    assert seen[0] < seen[5] < seen[-1]
    assert seen[20] == seen[-1] < 15 * SIZE


@pytest.mark.parametrize("seed", range(5))
def test_los_trozos_no_se_solapan_ni_se_pierden(seed: int) -> None:
    heap, draw, sizes = Heap(), random.Random(seed), {}
    for name in range(400):
        sizes[name] = draw.choice([1, 500, 4096, SIZE, 3 * SIZE, draw.randrange(1, 1 << 20)])
        heap.allocate(name, sizes[name])
        while len(sizes) > 30:
            victim = draw.choice(list(sizes))
            heap.release(victim, sizes.pop(victim))
    assert heap.live == sum(sizes.values())
    chunks = [(start, size) for start, size in heap._used.values() if start is not None]
    chunks += [chunk for objects in heap._objects.values() for chunk in objects]
    chunks += [(start, size) for size, starts in heap._cached.items() for start in starts]
    chunks += [(start, size) for size, start in heap._free]
    place = 0
    for start, size in sorted(chunks):
        assert start == place
        place += size
    assert place == heap._top
