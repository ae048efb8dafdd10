"""La tabla de tarjetas contra las cifras publicadas, y cómo se reconoce una tarjeta real."""

import pytest

from enlace.cards import (
    CARDS,
    GIB,
    Capability,
    Card,
    find_card,
    fma_per_clock,
    has_tensor_cores,
    largest_fitting,
    memory_bandwidth,
    peak_flops,
    profile_card,
)

PUBLISHED = [
    ("NVIDIA GeForce RTX 2060", 6, 25.8),
    ("NVIDIA GeForce RTX 2060", 12, 28.7),
    ("NVIDIA GeForce RTX 2060 SUPER", 8, 28.7),
    ("NVIDIA GeForce RTX 2060 with Max-Q Design", 6, 18.2),
    ("NVIDIA GeForce RTX 2070", 8, 29.9),
    ("Tesla T4", 16, 65.0),
    ("NVIDIA GeForce RTX 3060", 12, 25.5),
    ("NVIDIA GeForce RTX 3090", 24, 71.0),
    ("NVIDIA GeForce RTX 3060 Laptop GPU", 6, 21.9),
    ("NVIDIA RTX A6000", 48, 154.8),
    ("NVIDIA A100-SXM4-80GB", 80, 312.0),
    ("NVIDIA GeForce RTX 4060", 8, 30.2),
    ("NVIDIA GeForce RTX 4090", 24, 165.2),
    ("NVIDIA H100 PCIe", 80, 756.0),
    ("NVIDIA H100 80GB HBM3", 80, 989.0),
    ("NVIDIA GeForce RTX 5090", 32, 209.5),
]
"""TFLOP/s de fp16 acumulando en fp32, los de la ficha del fabricante o los de otras tablas."""


@pytest.mark.parametrize(("name", "memory_gib", "teraflops"), PUBLISHED)
def test_el_maximo_es_el_publicado(name: str, memory_gib: float, teraflops: float) -> None:
    card = next(card for card in CARDS if (card.name, card.memory_gib) == (name, memory_gib))
    assert card.peak_flops("fp16") / 1e12 == pytest.approx(teraflops, rel=0.005)
    if card.capability >= (8, 0):
        assert card.peak_flops("bf16") == card.peak_flops("fp16")


@pytest.mark.parametrize(
    ("name", "capability", "fma"),
    [
        ("NVIDIA GeForce RTX 2060", (7, 5), 256),
        ("NVIDIA TITAN RTX", (7, 5), 512),
        ("NVIDIA GeForce GTX 1660", (7, 5), 128),
        ("NVIDIA A100-SXM4-40GB", (8, 0), 1024),
        ("NVIDIA GeForce RTX 3060", (8, 6), 256),
        ("NVIDIA RTX A6000", (8, 6), 512),
        ("NVIDIA H100 PCIe", (9, 0), 2048),
        ("NVIDIA GeForce RTX 5090", (12, 0), 256),
        ("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 512),
    ],
)
def test_operaciones_por_ciclo(name: str, capability: Capability, fma: int) -> None:
    assert fma_per_clock(name, capability, "fp16") == fma


def test_una_tarjeta_que_no_esta_en_la_tabla_se_calcula_con_sus_propiedades() -> None:
    peak = peak_flops("NVIDIA RTX PRO 6000", (12, 0), 188, 2.617e9, "bf16")
    assert peak / 1e12 == pytest.approx(503.8, rel=0.005)
    # Una capacidad más nueva que todas usa la fórmula de la última conocida.
    assert fma_per_clock("NVIDIA GeForce RTX 6090", (12, 1), "bf16") == 256
    assert memory_bandwidth(7_001_000, 192) / 1e9 == pytest.approx(336, rel=0.001)


def test_bf16_emulado_no_pasa_de_fp32() -> None:
    card = profile_card("rtx2060")
    assert card is not None
    assert card.peak_flops("bf16") == card.peak_flops("fp32")
    assert card.peak_flops("fp32") / 1e12 == pytest.approx(6.45, rel=0.01)


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("NVIDIA GeForce GTX 1660 SUPER", (7, 5), False),
        ("NVIDIA GeForce GTX 1650", (7, 5), False),
        ("NVIDIA GeForce MX450", (7, 5), False),
        ("Quadro T1000", (7, 5), False),
        ("NVIDIA GeForce RTX 2060", (7, 5), True),
        ("Tesla T4", (7, 5), True),
        ("NVIDIA GeForce GTX 1080", (6, 1), False),
        ("NVIDIA GeForce RTX 5090", (12, 0), True),
    ],
)
def test_nucleos_tensoriales(name: str, capability: Capability, expected: bool) -> None:
    assert has_tensor_cores(name, capability) is expected


def _found(name: str, capability: Capability, gib: float, sms: int, mhz: float, w: float) -> Card:
    card = find_card(name, capability, int(gib * GIB), sms, mhz, w)
    assert card is not None
    return card


@pytest.mark.parametrize(
    ("mhz", "watts", "expected_mhz"),
    [(1680, 160, 1680), (1200, 80, 1200), (1560, 115, 1560), (1185, 65, 1185), (0, 0, 1680)],
)
def test_las_portatiles_con_el_mismo_nombre_se_distinguen(
    mhz: float, watts: float, expected_mhz: int
) -> None:
    card = _found("NVIDIA GeForce RTX 2060", (7, 5), 5.8, 30, mhz, watts)
    assert card.boost_mhz == expected_mhz


def test_la_memoria_y_los_multiprocesadores_mandan_sobre_el_nombre() -> None:
    name = "NVIDIA GeForce RTX 2060"
    assert _found(name, (7, 5), 11.75, 34, 1650, 184).memory_gib == 12
    assert find_card(name, (7, 5), 24 * GIB) is None
    assert find_card(name, (7, 5), 6 * GIB, sm_count=46) is None
    assert find_card(name, (8, 6), 6 * GIB) is None
    assert find_card("NVIDIA GeForce RTX 9999", (7, 5), 6 * GIB) is None
    laptop = _found("NVIDIA GeForce RTX 4060 Laptop GPU", (8, 9), 7.6, 24, 0, 0)
    assert laptop.is_laptop
    # La T4 con ECC enseña menos de 15 GiB de sus 16.
    assert _found("Tesla T4", (7, 5), 14.56, 40, 1590, 70).profile == "t4"
    assert _found("NVIDIA H100 80GB HBM3", (9, 0), 79.1, 132, 1980, 700).watts == 700


def test_toda_tarjeta_de_la_tabla_se_encuentra_a_si_misma() -> None:
    for card in CARDS:
        found = find_card(
            card.name, card.capability, card.memory_bytes, card.sm_count, card.boost_mhz, card.watts
        )
        assert found is not None
        assert (found.boost_mhz, found.watts) == (card.boost_mhz, card.watts), card


def test_cada_perfil_tiene_una_sola_tarjeta() -> None:
    profiles = [card.profile for card in CARDS if card.profile]
    assert len(profiles) == len(set(profiles))
    assert profile_card("rtx5090") == _found("NVIDIA GeForce RTX 5090", (12, 0), 31.4, 170, 0, 0)
    assert profile_card("inventado") is None


def test_el_mayor_que_cabe() -> None:
    sizes = [("a", 6.0), ("b", 12.0), ("c", 24.0)]
    assert largest_fitting(sizes, int(5.8 * GIB)) == "a"
    assert largest_fitting(sizes, int(15.6 * GIB)) == "b"
    assert largest_fitting(sizes, 80 * GIB) == "c"
    assert largest_fitting(sizes, 4 * GIB) is None
