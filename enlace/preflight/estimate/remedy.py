"""El menor cambio con el que cabría lo que no cabe, comprobado estimándolo.

De menos a más: primero el micro-batch, que no cuesta cálculo; luego recalcular activaciones, que
sí; y, si ninguna de las dos cosas basta por separado, las dos. El modelo no se toca: sería otro.
"""

from collections.abc import Callable

from enlace.config.schema import Config
from enlace.preflight.estimate.advice import MODES, changed

Fits = Callable[[Config], bool]


def smallest_change(config: Config, fits: Fits) -> Config | None:
    """La configuración más parecida que cabe; `None` si no basta con el micro-batch y recalcular.

    Args:
        config: la que no cabe.
        fits: dice si una cabe con su margen.
    """
    hardware = config.hardware
    mode = hardware.activation_checkpointing
    stronger = MODES[MODES.index(mode) + 1 :]
    smaller = _smaller(config)
    alone = _largest(config, smaller, fits)
    if alone is not None:
        return alone
    tries = [changed(config, other, hardware.micro_batch) for other in stronger]
    for candidate in tries:
        if fits(candidate):
            return candidate
    both = (_largest(changed(config, other, hardware.micro_batch), smaller, fits)
            for other in stronger)  # fmt: skip
    return next((candidate for candidate in both if candidate is not None), None)


def change_text(config: Config, other: Config) -> str:
    """La orden, en palabras, que lleva de `config` a `other`."""
    now, then = config.hardware, other.hardware
    parts = []
    if then.activation_checkpointing != now.activation_checkpointing:
        parts.append(
            f"pon hardware.activation_checkpointing: {then.activation_checkpointing} "
            f"(ahora, {now.activation_checkpointing})"
        )
    if then.micro_batch != now.micro_batch:
        parts.append(f"baja hardware.micro_batch de {now.micro_batch} a {then.micro_batch}")
    return " y ".join(parts)


def _smaller(config: Config) -> list[int]:
    sequences = config.sequences_per_step
    return [rows for rows in range(1, config.hardware.micro_batch) if sequences % rows == 0]


def _largest(config: Config, sizes: list[int], fits: Fits) -> Config | None:
    """Con el mayor de esos micro-batches que cabe, buscado por mitades."""
    best, low, high = None, 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        candidate = changed(config, config.hardware.activation_checkpointing, sizes[middle])
        if fits(candidate):
            best, low = candidate, middle + 1
        else:
            high = middle
    return best
