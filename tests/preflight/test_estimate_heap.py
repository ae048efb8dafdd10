"""El montón de glibc simulado, regla a regla."""

import random

import pytest

from enlace.preflight.estimate.heap import (
    CACHED_CHUNKS,
    MAX_MMAP_THRESHOLD,
    MMAP_THRESHOLD,
    PAGE,
    SPARE,
    Heap,
)

SIZE = 100_000
ROUNDED = SIZE + 16
"""Con la cabecera, y redondeado a 16 bytes."""


def test_lo_que_viene_de_mmap_se_devuelve_y_los_huecos_se_retienen() -> None:
    heap = Heap()
    heap.allocate(1, MMAP_THRESHOLD)
    assert heap.reserved == MMAP_THRESHOLD + PAGE  # páginas enteras, con lo que pide para alinear
    heap.release(1, MMAP_THRESHOLD)
    assert (heap.live, heap.reserved) == (0, 0)
    # El umbral ha subido: lo menor que lo soltado ya sale del montón.
    heap.allocate(2, MMAP_THRESHOLD)
    heap.allocate(3, MMAP_THRESHOLD)
    before = heap.reserved
    assert 2 * MMAP_THRESHOLD < before <= 2 * (MMAP_THRESHOLD + 16 + SPARE)
    heap.release(2, MMAP_THRESHOLD)
    assert (heap.live, heap.reserved) == (MMAP_THRESHOLD, before)


def test_el_umbral_cuenta_lo_que_se_pide_para_alinear() -> None:
    heap = Heap()
    heap.allocate(1, MMAP_THRESHOLD - SPARE)
    assert heap.reserved % PAGE == 0
    heap = Heap()
    heap.allocate(1, MMAP_THRESHOLD - 2 * SPARE)
    assert heap.reserved % PAGE != 0


def test_lo_que_pasa_de_32_mib_nunca_sube_el_umbral() -> None:
    heap = Heap()
    heap.allocate(1, 2 * MAX_MMAP_THRESHOLD)
    heap.release(1, 2 * MAX_MMAP_THRESHOLD)
    heap.allocate(2, MMAP_THRESHOLD)
    heap.release(2, MMAP_THRESHOLD)
    assert heap.reserved == 0


@pytest.mark.parametrize("size", [SIZE, 2 * MAX_MMAP_THRESHOLD])
def test_si_se_guarda_lo_soltado_nada_vuelve_al_sistema_y_se_usa_otra_vez(size: int) -> None:
    heap = Heap(keeps=True)
    heap.allocate(1, size)
    top = heap.reserved
    assert top >= size
    heap.release(1, size)
    assert (heap.live, heap.reserved) == (0, top)
    heap.allocate(2, size - SPARE)
    assert heap.reserved == top


def test_lo_libre_de_arriba_se_queda_hasta_el_doble_del_umbral() -> None:
    heap = Heap()
    sizes = dict.fromkeys(range(40), SIZE)
    for name, size in sizes.items():
        heap.allocate(name, size)
    top = heap.reserved
    released = 0
    for name in reversed(sizes):
        heap.release(name, SIZE)
        released += ROUNDED
        if released < 2 * MMAP_THRESHOLD:
            assert heap.reserved == top
    assert heap.live == 0
    # Los sobrantes de los primeros siguen en la caché, y de ahí no baja.
    assert heap.reserved <= 2 * CACHED_CHUNKS * (ROUNDED + SPARE)
    assert heap.reserved < top / 2


def test_lo_libre_de_arriba_solo_se_usa_si_no_basta_un_hueco() -> None:
    heap = Heap()
    for name in range(4):
        heap.allocate(name, SIZE)
    before = heap.reserved
    heap.release(1, SIZE)
    heap.release(3, SIZE)
    heap.allocate(4, SIZE // 2)
    heap.allocate(5, SIZE)
    assert before <= heap.reserved <= before + SPARE
    place, _ = heap._used[4]
    assert place is not None
    assert place < 2 * (ROUNDED + SPARE)


def test_un_objeto_que_vive_mucho_estropea_el_hueco_de_un_tensor_que_murio() -> None:
    """Como al entrenar: el sobrante de alinear es del tamaño de un objeto, y ahí cae el que nace.

    Al morir el tensor, su hueco ya no da para alinear en él otro igual.
    """
    clean, spoiled = Heap(), Heap()
    for heap in (clean, spoiled):
        for name in range(100):
            heap.allocate(2 * name, SIZE)
            if heap is spoiled:
                for piece in (48, 112):
                    heap.allocate_object(1000 * piece + name, piece)
            heap.allocate(2 * name + 1, SIZE)
        for name in range(100):
            heap.release(2 * name, SIZE)
        for name in range(100):
            heap.allocate(1000 + name, SIZE)
        assert heap.live == 200 * SIZE
    assert clean.reserved < 1.05 * clean.live
    assert spoiled.reserved > 1.2 * spoiled.live


def test_la_cache_guarda_siete_de_cada_tamano_y_da_el_ultimo() -> None:
    heap = Heap()
    for name in range(20):
        heap.allocate_object(name, 496)
    places = [heap._objects[name][0] for name in range(20)]
    for name in range(20):
        heap.release_object(name)
    heap.release_object(7)  # soltar dos veces lo mismo no hace nada
    assert len(heap._cached[496]) == CACHED_CHUNKS
    heap.allocate_object(21, 496)
    assert heap._objects[21][0] == places[CACHED_CHUNKS - 1]
    assert heap.live == 0


@pytest.mark.parametrize("seed", range(5))
def test_los_trozos_no_se_solapan_ni_se_pierden(seed: int) -> None:
    heap, draw, sizes = Heap(), random.Random(seed), {}
    objects: list[int] = []
    for name in range(400):
        sizes[name] = draw.choice([1, 500, 4096, SIZE, 3 * SIZE, draw.randrange(1, 1 << 20)])
        heap.allocate(name, sizes[name])
        heap.allocate_object(name, draw.choice([32, 48, 112, 192, 496]))
        objects.append(name)
        while len(sizes) > 30:
            victim = draw.choice(list(sizes))
            heap.release(victim, sizes.pop(victim))
        while len(objects) > 50:
            heap.release_object(objects.pop(draw.randrange(len(objects))))
    assert heap.live == sum(sizes.values())
    chunks = [(start, size) for start, size in heap._used.values() if start is not None]
    chunks += heap._objects.values()
    chunks += [(start, size) for size, starts in heap._cached.items() for start in starts]
    chunks += [(start, size) for size, start in heap._free]
    place = 0
    for start, size in sorted(chunks):
        assert start == place
        place += size
    assert place == heap._top <= heap._touched
