"""Cuánto se equivocó una estimación, cuando por fin se midió: el informe del preflight lo dice."""

from enlace.cards import profile_card
from enlace.config.schema import Config
from enlace.errors import ConfigError, HardwareError
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.record import Comparison, Estimate, EstimateError
from enlace.preflight.measurement import Measurement


def compare(config: Config, measurement: Measurement) -> Comparison | None:
    """Estima la configuración que se acaba de medir y dice cuánto se equivoca.

    Estima con la tarjeta del perfil, como `enlace estimate`. `None` si ese perfil no se deja
    estimar (por ejemplo, porque se editó para otra tarjeta).

    Args:
        config: la configuración medida.
        measurement: su medida.
    """
    try:
        card = profile_card(config.hardware.name)
        guess = estimate(config, card, measurement.disk.free_bytes, advise=False)
    except (ConfigError, HardwareError):  # no EnlaceError: una señal de parada también lo es
        return None
    time = guess.time
    return Comparison(
        peak_bytes=guess.memory.peak_bytes,
        live_bytes=guess.memory.live_bytes,
        tokens_per_second=None if time is None else time.tokens_per_second,
        total_seconds=None if time is None else time.total_seconds,
        error=estimate_error(guess, measurement),
    )


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
