"""Qué es un dispositivo, dicho con los pocos datos que hacen falta para decidir."""

from dataclasses import dataclass
from typing import Literal

from enlace.cards import GIB, Capability, Card, find_card, has_tensor_cores, memory_bandwidth

AMPERE = (8, 0)
"""Primera capacidad de cálculo con bf16 en los núcleos tensoriales y con FlashAttention."""


@dataclass(frozen=True)
class DeviceDescription:
    """Lo que hay que saber de un dispositivo para decidir; `capability` es None en CPU.

    Un 0, un `None` o una tupla vacía significan «no se sabe», y la regla que lo necesita no se
    aplica. Los relojes van en kHz, como los da CUDA; `arch_list`, como `torch.cuda`; `cuda` es la
    versión con la que se compiló torch y `driver_cuda` la mayor que admite el controlador.
    """

    kind: str
    name: str
    capability: Capability | None
    memory_bytes: int
    free_bytes: int | None = None
    sm_count: int = 0
    clock_khz: int = 0
    memory_clock_khz: int = 0
    memory_bus_bits: int = 0
    arch_list: tuple[str, ...] = ()
    cuda: str | None = None
    driver_cuda: tuple[int, int] | None = None
    platform: Literal["linux", "wsl", "windows"] = "linux"

    @property
    def has_tensor_cores(self) -> bool:
        """Si multiplica matrices de 16 bits en núcleos tensoriales."""
        return self.capability is not None and has_tensor_cores(self.name, self.capability)

    def __str__(self) -> str:
        if self.capability is None:
            return self.name
        major, minor = self.capability
        return f"{self.name} (capacidad {major}.{minor})"


def native_bf16(description: DeviceDescription) -> bool:
    """Si la GPU calcula bf16 en sus núcleos tensoriales (capacidad 8.0 o mayor).

    `torch.cuda.is_bf16_supported()` dice que sí también en Turing, donde bf16 se emula y es más
    lento que fp32. En CPU la respuesta es no: bf16 allí es correcto pero se admite solo por
    exactitud, no por velocidad.
    """
    return description.capability is not None and description.capability >= AMPERE


def known_card(description: DeviceDescription) -> Card | None:
    """La tarjeta de la tabla que corresponde a la descripción."""
    if description.capability is None:
        return None
    return find_card(
        description.name,
        description.capability,
        description.memory_bytes,
        description.sm_count,
        description.clock_khz / 1e3,
    )


def described_card(description: DeviceDescription) -> Card | None:
    """La tarjeta con las cifras que ella misma declara; los vatios, de la tabla (0 si no está).

    Si no declara sus relojes vale la de la tabla; en CPU, o sin unas ni otra, `None`.
    """
    known = known_card(description)
    if description.capability is None or not (description.sm_count and description.clock_khz):
        return known
    bandwidth = memory_bandwidth(description.memory_clock_khz, description.memory_bus_bits)
    return Card(
        description.name,
        description.capability,
        description.sm_count,
        round(description.clock_khz / 1e3),
        description.memory_bytes / GIB,
        bandwidth or (known.bandwidth if known else 0.0),
        known.watts if known else 0,
        is_laptop=known.is_laptop if known else "Laptop" in description.name,
    )
