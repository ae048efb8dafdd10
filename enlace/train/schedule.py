"""La tasa de aprendizaje como función pura del paso: WSD (warm-up, stable, decay) y coseno.

Los pasos se numeran desde 0. El calentamiento llega a la tasa máxima en su último paso y nunca
vale 0 en el primero; el decaimiento empieza en la máxima y alcanzaría `final_lr_fraction` en el
paso `steps`, justo después del último, así que ningún paso se gasta con tasa 0.

Fuentes: WSD, Hu et al. 2024 (MiniCPM, arXiv 2404.06395); decaimiento 1−√p, Hägele et al. 2024
(arXiv 2405.18392); coseno, Loshchilov y Hutter 2017 (arXiv 1608.03983).
"""

import math

from enlace.config.schema import TrainConfig


def learning_rate(step: int, train: TrainConfig) -> float:
    """La tasa de aprendizaje del paso `step` (desde 0)."""
    warmup = train.warmup_steps
    if step < warmup:
        return train.lr * ((step + 1) / warmup)
    start = decay_start(train)
    if step < start:
        return train.lr
    # Con decay 0 solo se llega aquí más allá del último paso, ya en la tasa final.
    progress = min(1.0, (step - start) / train.decay_steps) if train.decay_steps else 1.0
    floor = train.final_lr_fraction
    return train.lr * (floor + (1.0 - floor) * _remaining(progress, train))


def decay_start(train: TrainConfig) -> int:
    """Primer paso del decaimiento; con coseno, el que sigue al calentamiento."""
    return train.steps - train.decay_steps


def is_time(step: int, every: int, train: TrainConfig) -> bool:
    """Si tras el paso `step` (desde 0) toca algo que ocurre cada `every` pasos, y al final."""
    done = step + 1
    return done % every == 0 or done == train.steps


def _remaining(progress: float, train: TrainConfig) -> float:
    """Lo que queda por decaer, de 1 (al empezar) a 0 (al acabar), según la forma elegida."""
    if train.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    if train.decay_shape == "sqrt":
        return 1.0 - math.sqrt(progress)
    return 1.0 - progress
