"""Cuánto se equivocó una estimación, cuando por fin se midió."""

from enlace.preflight.estimate.record import Estimate
from enlace.preflight.measurement import Measurement, Record


class EstimateError(Record):
    """Medido entre estimado, menos uno: 0,1 es «se midió un 10 % más». None si falta una parte."""

    peak_memory: float | None
    allocated_memory: float | None
    tokens_per_second: float | None
    total_seconds: float | None
    checkpoint_bytes: float | None


def estimate_error(estimate: Estimate, measurement: Measurement) -> EstimateError:
    """Compara una estimación con la medida de la misma configuración.

    Raises:
        ValueError: son de configuraciones distintas.
    """
    same = ("dtype", "sdpa_backend", "micro_batch", "parameters")
    for name in same:
        estimated, measured = getattr(estimate, name), getattr(measurement, name)
        if estimated != measured:
            raise ValueError(
                f"la estimación es de {name}={estimated!r} y la medida de {measured!r}"
            )
    time, memory = estimate.time, measurement.memory
    return EstimateError(
        peak_memory=_relative(memory.peak_bytes, estimate.memory.peak_bytes),
        allocated_memory=_relative(memory.peak_allocated_bytes, estimate.memory.live_bytes),
        tokens_per_second=_relative(
            measurement.tokens_per_second, time.tokens_per_second if time else None
        ),
        total_seconds=_relative(
            measurement.time.total_median, time.total_seconds if time else None
        ),
        checkpoint_bytes=_relative(
            measurement.disk.checkpoint_bytes, estimate.disk.checkpoint_bytes
        ),
    )


def _relative(measured: float | None, estimated: float | None) -> float | None:
    if measured is None or not estimated:
        return None
    return measured / estimated - 1
