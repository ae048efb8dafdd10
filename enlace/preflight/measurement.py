"""Qué mide el preflight: registros inmutables que viajan como JSON entre procesos y al informe.

Lo que no se puede medir en un dispositivo es `None`; nunca un cero ni una estimación disfrazada.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base de los registros: inmutables y sin campos desconocidos."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class MemoryUse(Record):
    """Memoria del dispositivo: VRAM reservada por torch, o RAM añadida al proceso en CPU."""

    peak_bytes: int | None
    peak_allocated_bytes: int | None
    free_bytes: int | None
    total_bytes: int
    allocation_retries: int | None
    """Veces que CUDA no tuvo sitio y torch vació su reserva: más de cero es ir al límite."""


class TimeUse(Record):
    """Tiempos con el reloj de pared, en segundos, con el dispositivo sincronizado."""

    build: float
    warmup: float
    steps: tuple[float, ...]
    step_median: float
    step_p90: float
    evaluation: float
    """Una validación entera de `train.eval_tokens`, a partir de un lote medido."""
    save: float
    load: float
    total_median: float
    """El entrenamiento entero: pasos, validaciones y checkpoints."""
    total_p90: float


class DiskUse(Record):
    """Sitio en el disco de los checkpoints."""

    checkpoint_bytes: int
    needed_bytes: int
    free_bytes: int


class LossScaling(Record):
    """El escalado de la pérdida en fp16."""

    calibration_skips: int
    """Pasos saltados seguidos al principio: el escalado buscando su nivel."""
    steps: int
    """Pasos medidos después de la calibración."""
    skips: int
    final_scale: float


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
    first_loss: float | None
    last_loss: float | None
    """Pérdida del primer y del último paso medidos; `None` si no es finita."""
    time: TimeUse
    memory: MemoryUse
    disk: DiskUse
    loss_scaling: LossScaling | None
    """`None` si la precisión no es fp16."""


class Failure(Record):
    """La medida no llegó al final."""

    kind: Literal["memory", "killed", "crashed", "refused"]
    """Memoria agotada, SIGKILL, muerte o salida inesperada, o error explicado por ENLACE."""
    detail: str


Outcome = Measurement | Failure
