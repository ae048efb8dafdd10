"""Qué mide el preflight: registros inmutables que viajan como JSON entre procesos y al informe.

Lo que no se puede medir en un dispositivo es `None`; nunca un cero ni una estimación disfrazada.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from enlace.preflight.health import Health

Phase = Literal[
    "montaje",
    "primer paso",
    "dos micro-batches",
    "pasos",
    "validación",
    "checkpoint",
    "reanudación",
]


class Record(BaseModel):
    """Base de los registros: inmutables y sin campos desconocidos."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class PhaseMemory(Record):
    """El pico de memoria mientras duraba una fase, en bytes."""

    name: Phase
    peak_bytes: int | None
    allocated_bytes: int | None


class MemoryUse(Record):
    """Memoria del dispositivo: VRAM reservada por torch, o RAM añadida al proceso en CPU."""

    peak_bytes: int | None
    """El mayor de todas las fases: lo que decide si cabe."""
    peak_allocated_bytes: int | None
    steady_bytes: int | None
    """El pico de los pasos ya en marcha."""
    steady_allocated_bytes: int | None
    non_torch_bytes: int | None
    """Lo que creció el uso de la GPU fuera de la reserva de torch (núcleos, espacios de cuBLAS)."""
    context_bytes: int | None
    """El contexto de CUDA; solo con NVML."""
    free_bytes: int | None
    """Libre al empezar, con el contexto de CUDA ya creado."""
    total_bytes: int
    allocation_retries: int | None
    """Veces que CUDA no tuvo sitio y torch vació su reserva: más de cero es ir al límite."""
    phases: tuple[PhaseMemory, ...]

    @property
    def needed_bytes(self) -> int | None:
        """Lo que el entrenamiento llega a ocupar: el pico y lo que crece fuera de torch."""
        return None if self.peak_bytes is None else self.peak_bytes + (self.non_torch_bytes or 0)

    @property
    def fragmentation(self) -> float | None:
        """Fracción de la memoria reservada que en el pico no usaba ningún tensor."""
        if not self.peak_bytes or self.peak_allocated_bytes is None:
            return None
        return 1 - self.peak_allocated_bytes / self.peak_bytes


class TimeUse(Record):
    """Tiempos con el reloj de pared, en segundos, con el dispositivo sincronizado."""

    build: float
    warmup: float
    """El primer paso, con la compilación si la hay: no entra en las medianas."""
    steps: tuple[float, ...]
    step_median: float
    step_p90: float
    loading: float
    """Leer el batch de un paso (mediana)."""
    loading_from: Literal["shards", "datos inventados"]
    evaluation: float
    """Una validación entera de `train.eval_tokens`, a partir de un lote medido."""
    save: float
    load: float
    total_median: float
    """El entrenamiento entero: lectura, pasos, validaciones y checkpoints."""
    total_p90: float


class DiskUse(Record):
    """Sitio en el disco de los checkpoints."""

    checkpoint_bytes: int
    shards_bytes: int
    """Lo que ocuparán los shards si aún no están: los tokens del entrenamiento, leídos una vez."""
    needed_bytes: int
    free_bytes: int


class EnergyUse(Record):
    """Energía de la GPU en los pasos medidos, y la del entrenamiento entero a ese ritmo."""

    source: Literal["contador", "potencia media"]
    watts: float
    total_kwh: float
    cost: float | None
    """En la moneda de `hardware.preflight.kwh_price`; `None` si el precio es 0."""


class CardState(Record):
    """La tarjeta al acabar los pasos medidos, según NVML; `None` lo que no contesta."""

    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    temperature_c: int | None
    power_limit_watts: float | None
    throttling: tuple[str, ...] | None
    """Por qué bajó el reloj; vacío si por nada."""


class Measurement(Record):
    """Todo lo medido en esta máquina con esta configuración."""

    device: str
    torch_version: str
    dtype: str
    sdpa_backend: str
    parameters: int
    flops_per_token: int
    tokens_per_parameter: float
    tokens_per_step: int
    micro_batch: int
    accumulation: int
    tokens_per_second: float
    slow_tokens_per_second: float
    """Con los pasos lentos (p90)."""
    first_loss: float | None
    last_loss: float | None
    """Pérdida del primer y del último paso medidos; `None` si no es finita."""
    time: TimeUse
    memory: MemoryUse
    disk: DiskUse
    energy: EnergyUse | None
    card: CardState | None
    health: Health | None
    """`None` si la precisión no es fp16."""
    warnings: tuple[str, ...]
    """Los avisos de `open_device` sobre esta máquina."""


class Failure(Record):
    """La medida no llegó al final."""

    kind: Literal["memory", "killed", "crashed", "refused"]
    """Memoria agotada, SIGKILL, muerte o salida inesperada, o error explicado por ENLACE."""
    detail: str
    health: Health | None = None
    """La salud de fp16, si dio tiempo a medirla."""


Outcome = Measurement | Failure
