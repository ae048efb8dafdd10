import pytest

from enlace.preflight.estimate.allocator import MIB, CachingAllocator, rounded, segment_size


@pytest.mark.parametrize(("size", "expected"), [(1, 512), (512, 512), (513, 1024), (4096, 4096)])
def test_una_peticion_se_redondea_a_512_bytes(size: int, expected: int) -> None:
    assert rounded(size) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB + 512, 12 * MIB),
    ],
)
def test_cada_tamano_pide_su_segmento(size: int, expected: int) -> None:
    assert segment_size(size) == expected


def test_lo_pequeno_comparte_segmento_y_lo_vivo_cuenta_redondeado() -> None:
    allocator = CachingAllocator()
    for name in range(4):
        allocator.allocate(name, 512 * 1024 - 100)
    assert (allocator.live, allocator.reserved) == (2 * MIB, 2 * MIB)
    allocator.allocate(4, 1)
    assert (allocator.live, allocator.reserved) == (2 * MIB + 512, 4 * MIB)


def test_lo_soltado_se_vuelve_a_usar_sin_reservar_mas() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 30 * MIB)
    allocator.release(1)
    assert (allocator.live, allocator.reserved) == (0, 30 * MIB)
    allocator.allocate(2, 30 * MIB)
    assert allocator.reserved == 30 * MIB


def test_un_bloque_grande_se_parte_si_sobra_mas_de_1_mib() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 40 * MIB)
    allocator.release(1)
    allocator.allocate(2, 24 * MIB)
    allocator.allocate(3, 16 * MIB)
    assert (allocator.live, allocator.reserved) == (40 * MIB, 40 * MIB)
    # Sobraría justo 1 MiB: el bloque se entrega entero y lo vivo cuenta lo que ocupa.
    allocator.release(2)
    allocator.allocate(4, 23 * MIB)
    assert (allocator.live, allocator.reserved) == (40 * MIB, 40 * MIB)


def test_los_vecinos_libres_se_unen() -> None:
    allocator = CachingAllocator()
    allocator.allocate(0, 60 * MIB)
    allocator.release(0)
    for name in (1, 2, 3):
        allocator.allocate(name, 20 * MIB)
    for name in (1, 3, 2):
        allocator.release(name)
    allocator.allocate(4, 60 * MIB)
    assert allocator.reserved == 60 * MIB


def test_dos_segmentos_no_se_unen_y_el_hueco_elegido_es_el_menor_que_basta() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 20 * MIB)
    allocator.allocate(2, 30 * MIB)
    allocator.release(1)
    allocator.release(2)
    allocator.allocate(3, 20 * MIB)
    allocator.allocate(4, 30 * MIB)
    assert allocator.reserved == 50 * MIB
    allocator.release(3)
    allocator.release(4)
    allocator.allocate(5, 40 * MIB)
    assert allocator.reserved == 90 * MIB


def test_soltar_lo_que_no_existe_y_pedir_cero_no_hacen_nada() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 0)
    allocator.release(1)
    allocator.release(2)
    assert (allocator.live, allocator.reserved) == (0, 0)
