"""Qué dice una estimación: registros inmutables, como los de una medida, pero nunca mezclados."""

from typing import Literal

from enlace.preflight.measurement import Record

Fit = Literal["cabe", "justo", "no cabe"]


class PhaseMemory(Record):
    """Picos de una fase: bytes de tensores vivos y bytes que el asignador reserva para ellos."""

    phase: str
    live_bytes: int
    reserved_bytes: int


class MemoryEstimate(Record):
    """La memoria del dispositivo.

    Attributes:
        phases: cada fase, en orden.
        live_bytes: el pico de tensores vivos.
        peak_bytes: el pico reservado, que es con lo que se compara (en CPU, RAM añadida).
        context_bytes: lo que CUDA ocupa aparte.
        budget_bytes: la memoria del perfil menos ese contexto.
        margin_bytes: lo que `hardware.memory_margin` pide dejar libre.
        extrapolated: si sale de trazas pequeñas y no de la del modelo entero.
    """

    phases: tuple[PhaseMemory, ...]
    live_bytes: int
    peak_bytes: int
    context_bytes: int
    budget_bytes: int
    margin_bytes: int
    extrapolated: bool


class TimeEstimate(Record):
    """El tiempo, con su margen: `low` es lo pesimista en velocidad y `high` lo optimista."""

    tokens_per_second: float
    tokens_per_second_low: float
    tokens_per_second_high: float
    total_seconds: float
    total_seconds_low: float
    total_seconds_high: float
    peak_flops: float
    model_flops_utilization: float
    gemm_share: float
    attention_share: float
    pointwise_share: float
    optimizer_share: float
    """Parte del paso que se va en el optimizador."""


class EnergyEstimate(Record):
    """La energía de la tarjeta a su potencia máxima; el coste es None si no hay precio."""

    watts: float
    kwh: float
    cost: float | None


class DiskEstimate(Record):
    """Sitio en disco: checkpoints que conviven y lo exportado, y shards de todos los tokens."""

    checkpoint_bytes: int
    checkpoints_bytes: int
    shards_bytes: int
    free_bytes: int


class Choice(Record):
    """Un micro-batch y un checkpointing, y qué daría con ellos."""

    micro_batch: int
    activation_checkpointing: str
    peak_bytes: int
    tokens_per_second: float
    fits: bool


class Estimate(Record):
    """Todo lo que se puede decir de un entrenamiento sin su tarjeta."""

    run_name: str
    model: str
    profile: str
    device: str
    dtype: str
    sdpa_backend: str
    compile: bool
    micro_batch: int
    accumulation: int
    activation_checkpointing: str
    parameters: int
    flops_per_token: int
    newton_schulz_flops: int
    """Por paso de optimizador; 0 si no es Muon."""
    tokens: int
    tokens_per_parameter: float
    fit: Fit
    reasons: tuple[str, ...]
    memory: MemoryEstimate
    time: TimeEstimate | None
    energy: EnergyEstimate | None
    disk: DiskEstimate
    best: Choice | None
    """El más rápido de los que caben; None si no cabe ninguno o no se sabe la velocidad."""
    fix: str | None
    """El único cambio que lo arregla; None si nada falla o ninguno basta."""

    @property
    def passed(self) -> bool:
        """Si no hay nada en contra."""
        return not self.reasons


class EstimateError(Record):
    """Medido entre estimado, menos uno: 0,1 es «se midió un 10 % más». None si falta una parte."""

    peak_memory: float | None
    allocated_memory: float | None
    tokens_per_second: float | None
    total_seconds: float | None
    checkpoint_bytes: float | None


class Comparison(Record):
    """Lo estimado que se puede medir, y su error."""

    peak_bytes: int
    live_bytes: int
    tokens_per_second: float | None
    total_seconds: float | None
    error: EstimateError
