"""Cuántos pasos caben en el disco."""

from collections.abc import Callable

from enlace.config.schema import Config


def most_steps(config: Config, free_bytes: int, needed: Callable[[Config], int]) -> int:
    """El mayor `train.steps` con el que caben checkpoints y shards; 0 si no cabe ni uno.

    Con menos pasos no se piden menos tokens por paso, pero sí menos shards y menos checkpoints de
    los que se conservan siempre.

    Args:
        config: la que no cabe.
        free_bytes: sitio libre.
        needed: lo que pide una configuración.
    """
    low, high = 0, config.train.steps
    while high - low > 1:
        middle = (low + high) // 2
        train = config.train.model_copy(update={"steps": middle})
        if needed(config.model_copy(update={"train": train})) <= free_bytes:
            low = middle
        else:
            high = middle
    return low
