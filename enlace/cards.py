"""Las tarjetas conocidas y de dónde sale su velocidad máxima.

Todo son datos y aritmética: nada de aquí necesita la tarjeta. El máximo se calcula con una fórmula
(multiprocesadores × operaciones por ciclo × reloj) y no con una lista de cifras, así que sirve
también para una tarjeta que no esté en la tabla, con las propiedades que ella misma declara.

Las portátiles de la serie RTX 20 se llaman igual que las de sobremesa y tienen los mismos
multiprocesadores; solo cambian el reloj y los vatios. Por eso una tarjeta se reconoce por nombre y
propiedades, nunca por el nombre solo.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

GIB = 1 << 30
Dtype = Literal["fp32", "bf16", "fp16"]
Capability = tuple[int, int]

_HALF_RATE = {(7, 5), (8, 6), (8, 9), (12, 0)}
"""Generaciones en las que una GeForce acumula en fp32 a la mitad de velocidad que en fp16."""
_TENSOR_FMA = {(7, 0): 512, (7, 5): 512, (8, 0): 1024, (8, 6): 512, (8, 9): 512, (9, 0): 2048}
_TENSOR_FMA |= {(10, 0): 4096, (12, 0): 512}
"""FMA de 16 bits por ciclo y multiprocesador, acumulando en fp32, en la versión profesional."""
_CORES = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
_CORES_SINCE_8_6 = 128
_WITHOUT_TENSOR_CORES = re.compile(r"\bGTX\b|\bMX\d50\b|\b(?:Quadro )?T(?:4|5|6|10|12|20)00\b")
"""Turing sin núcleos tensoriales (TU116 y TU117): tienen la misma capacidad 7.5 que una RTX 20."""
_NOISE = re.compile(r"\b(?:nvidia|geforce|tesla|laptop|gpu|with|max-q|design|\d+\s*gb)\b")
_ALIKE = 0.1
"""Cuánta memoria puede faltar respecto a la nominal: el controlador y la ECC se quedan parte."""


@dataclass(frozen=True)
class Card:
    """Una tarjeta con sus cifras publicadas.

    `boost_mhz` es el reloj con el que el fabricante da su máximo; `bandwidth` va en bytes por
    segundo y `watts` es el límite de potencia. `profile` es la capa de `configs/hardware/` que la
    describe, si la hay.
    """

    name: str
    capability: Capability
    sm_count: int
    boost_mhz: int
    memory_gib: float
    bandwidth: float
    watts: int
    is_laptop: bool = False
    profile: str | None = None

    @property
    def memory_bytes(self) -> int:
        """La memoria nominal."""
        return int(self.memory_gib * GIB)

    def peak_flops(self, dtype: Dtype) -> float:
        """FLOP por segundo, como mucho, en productos de matrices que acumulan en fp32."""
        return peak_flops(self.name, self.capability, self.sm_count, self.boost_mhz * 1e6, dtype)


def peak_flops(
    name: str, capability: Capability, sm_count: int, clock_hz: float, dtype: Dtype
) -> float:
    """FLOP por segundo máximos: multiprocesadores × FMA por ciclo × 2 × reloj.

    Una GeForce de las generaciones 7.5, 8.6, 8.9 y 12.0 acumula en fp32 a mitad de velocidad, y en
    fp32 se acumula siempre al entrenar. bf16 sin núcleos que lo calculen (antes de 8.0) se emula y
    no llega ni a fp32: se da el máximo de fp32.
    """
    return sm_count * fma_per_clock(name, capability, dtype) * 2 * clock_hz


def fma_per_clock(name: str, capability: Capability, dtype: Dtype) -> int:
    """Multiplicaciones con suma por ciclo y multiprocesador, acumulando en fp32."""
    cores = _CORES.get(capability, _CORES_SINCE_8_6)
    if dtype == "fp32" or (dtype == "bf16" and capability < (8, 0)):
        return cores
    if not has_tensor_cores(name, capability):
        return 2 * cores
    known = max((known for known in _TENSOR_FMA if known <= capability), default=(7, 0))
    halved = "geforce" in name.lower() and known in _HALF_RATE
    return _TENSOR_FMA[known] // (2 if halved else 1)


def has_tensor_cores(name: str, capability: Capability) -> bool:
    """Si la tarjeta tiene núcleos tensoriales; las GTX 16 no, aunque sean de capacidad 7.5."""
    return capability >= (7, 0) and not (
        capability == (7, 5) and _WITHOUT_TENSOR_CORES.search(name)
    )


def memory_bandwidth(memory_clock_khz: int, bus_bits: int) -> float:
    """Bytes por segundo de una memoria de doble tasa: 2 · reloj · bus / 8."""
    return 2 * memory_clock_khz * 1e3 * bus_bits / 8


def find_card(
    name: str,
    capability: Capability,
    memory_bytes: int,
    sm_count: int = 0,
    clock_mhz: float = 0.0,
    watts: float = 0.0,
) -> Card | None:
    """La tarjeta de la tabla que corresponde a lo que un dispositivo dice de sí mismo.

    Entre las del mismo nombre, capacidad y memoria gana la de reloj y potencia más parecidos, que
    es lo único que separa una RTX 2060 de sobremesa de una portátil. Un dato a 0 no cuenta.

    Returns:
        `None` si ninguna se parece; nunca una con otra memoria u otro número de multiprocesadores.
    """
    wanted, laptop = _plain(name), bool(re.search("laptop|max-q", name, re.IGNORECASE))
    alike = [
        card
        for card in CARDS
        if _plain(card.name) == wanted
        and card.capability == capability
        and _same_memory(card.memory_bytes, memory_bytes)
        and (not sm_count or card.sm_count == sm_count)
        and (not laptop or card.is_laptop)
    ]

    def distance(card: Card) -> float:
        pairs = ((card.boost_mhz, clock_mhz), (card.watts, watts))
        return sum(abs(math.log(known / seen)) for known, seen in pairs if seen)

    # Con un empate (nada que comparar) queda la primera, que es la de sobremesa.
    return min(alike, key=distance, default=None)


def profile_card(profile: str) -> Card | None:
    """La tarjeta para la que está hecha una capa de `configs/hardware/`; `None` si no se sabe."""
    return next((card for card in CARDS if card.profile == profile), None)


def largest_fitting(memory: Iterable[tuple[str, float]], memory_bytes: int) -> str | None:
    """De pares (nombre, GiB nominales), el mayor que cabe en `memory_bytes`."""
    fitting = [(gib, name) for name, gib in memory if gib * GIB * (1 - _ALIKE) <= memory_bytes]
    return max(fitting)[1] if fitting else None


def _same_memory(nominal: int, reported: int) -> bool:
    return nominal * (1 - _ALIKE) <= reported <= nominal * 1.02


def _plain(name: str) -> str:
    """El modelo sin marca ni tamaño: «NVIDIA GeForce RTX 2060» y «RTX 2060 12GB» son «rtx 2060»."""
    return " ".join(_NOISE.sub(" ", name.lower().replace("-sxm", " sxm")).split())


def _geforce(
    model: str,
    capability: Capability,
    sm_count: int,
    boost_mhz: int,
    memory_gib: float,
    gigabytes_per_second: float,
    watts: int,
    profile: str | None = None,
) -> Card:
    return Card(
        f"NVIDIA GeForce {model}",
        capability,
        sm_count,
        boost_mhz,
        memory_gib,
        gigabytes_per_second * 1e9,
        watts,
        is_laptop="Laptop" in model or "Max-Q" in model,
        profile=profile,
    )


CARDS = (
    # Turing.
    _geforce("GTX 1660", (7, 5), 22, 1785, 6, 192, 120, "gtx1660"),
    _geforce("GTX 1660 Ti", (7, 5), 24, 1770, 6, 288, 120),
    _geforce("GTX 1660 SUPER", (7, 5), 22, 1785, 6, 336, 125),
    _geforce("RTX 2060", (7, 5), 30, 1680, 6, 336, 160, "rtx2060"),
    _geforce("RTX 2060 Laptop GPU", (7, 5), 30, 1200, 6, 336, 90),
    _geforce("RTX 2060 Laptop GPU", (7, 5), 30, 1560, 6, 264, 115),
    _geforce("RTX 2060 with Max-Q Design", (7, 5), 30, 1185, 6, 264, 65),
    _geforce("RTX 2060", (7, 5), 34, 1650, 12, 336, 184),
    _geforce("RTX 2060 SUPER", (7, 5), 34, 1650, 8, 448, 175, "rtx2060-super"),
    _geforce("RTX 2070", (7, 5), 36, 1620, 8, 448, 175),
    Card("Tesla T4", (7, 5), 40, 1590, 16, 320e9, 70, profile="t4"),
    # Ampere.
    _geforce("RTX 3060", (8, 6), 28, 1777, 12, 360, 170, "rtx3060"),
    _geforce("RTX 3060", (8, 6), 28, 1777, 8, 240, 170),
    _geforce("RTX 3060 Laptop GPU", (8, 6), 30, 1425, 6, 336, 115, "rtx3060-laptop"),
    _geforce("RTX 3090", (8, 6), 82, 1695, 24, 936, 350),
    Card("NVIDIA RTX A6000", (8, 6), 84, 1800, 48, 768e9, 300),
    Card("NVIDIA A100-PCIE-40GB", (8, 0), 108, 1410, 40, 1555e9, 250, profile="a100"),
    Card("NVIDIA A100-SXM4-40GB", (8, 0), 108, 1410, 40, 1555e9, 400),
    Card("NVIDIA A100-PCIE-80GB", (8, 0), 108, 1410, 80, 1935e9, 300),
    Card("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410, 80, 2039e9, 400),
    # Ada.
    _geforce("RTX 4060", (8, 9), 24, 2460, 8, 272, 115, "rtx4060"),
    _geforce("RTX 4060 Laptop GPU", (8, 9), 24, 1470, 8, 256, 35),
    _geforce("RTX 4060 Laptop GPU", (8, 9), 24, 2370, 8, 256, 115),
    _geforce("RTX 4090", (8, 9), 128, 2520, 24, 1008, 450, "rtx4090"),
    _geforce("RTX 4090 Laptop GPU", (8, 9), 76, 1455, 16, 576, 80),
    _geforce("RTX 4090 Laptop GPU", (8, 9), 76, 2040, 16, 576, 150),
    # Hopper: el reloj es el de la cifra publicada.
    Card("NVIDIA H100 PCIe", (9, 0), 114, 1620, 80, 2000e9, 350),
    Card("NVIDIA H100 80GB HBM3", (9, 0), 132, 1830, 80, 3350e9, 700, profile="h100"),
    Card("NVIDIA H200", (9, 0), 132, 1830, 141, 4800e9, 700),
    # Blackwell.
    _geforce("RTX 5090", (12, 0), 170, 2407, 32, 1792, 575, "rtx5090"),
    _geforce("RTX 5090 Laptop GPU", (12, 0), 82, 1597, 24, 896, 95),
    _geforce("RTX 5090 Laptop GPU", (12, 0), 82, 2160, 24, 896, 150),
)
"""Cifras publicadas por los fabricantes y por las fichas de los portátiles; ninguna es medida."""
