"""Las reglas numéricas: cuándo un paso no debe tocar los pesos y cuándo hay que parar."""

import math

from enlace.config.schema import TrainConfig
from enlace.errors import TrainingAbortedError
from enlace.figures import number, short
from enlace.train.spikes import Scores
from enlace.train.state import Counters


def is_finite_step(loss: float, grad_norm: float) -> bool:
    """Si la pérdida y la norma del gradiente permiten actualizar los pesos.

    Basta con la norma para ver un inf o un NaN en cualquier gradiente; una norma que desborda con
    gradientes finitos tampoco sirve, porque el recorte los anularía.
    """
    return math.isfinite(loss) and math.isfinite(grad_norm)


def count_step(counters: Counters, step: int, skipped: bool, spike: bool) -> None:
    """Apunta si un paso con objetivos fue un salto, un pico o uno normal, que acaba la racha."""
    if skipped:
        counters.skipped += 1
        counters.consecutive_skips += 1
    else:
        counters.consecutive_skips = 0
    if spike:
        counters.spikes += 1
        counters.consecutive_spikes += 1
    if not skipped and not spike:
        counters.consecutive_spikes, counters.trouble_since = 0, None
    elif counters.trouble_since is None:
        counters.trouble_since = step


def abort_non_finite(
    step: int, counters: Counters, loss: float, grad_norm: float
) -> TrainingAbortedError:
    """El error de un paso no finito en fp32 o bf16, donde no hay escala que bajar."""
    return TrainingAbortedError(
        f"paso {step}: pérdida {loss} y norma de gradiente {grad_norm}; los pesos no se han tocado "
        "y el último checkpoint sigue intacto. Baja train.lr, alarga train.warmup o pon "
        "train.rewind: true y repite la orden",
        reason=f"pérdida {loss}, norma {grad_norm}",
        first=_streak_start(step, counters),
        last=step,
    )


def check_loss_scale(step: int, counters: Counters, scale: float, train: TrainConfig) -> None:
    """Detiene un entrenamiento en fp16 cuya escala de pérdida no encuentra sitio.

    Raises:
        TrainingAbortedError: demasiados saltos seguidos, o escala por debajo del mínimo.
    """
    first = _streak_start(step, counters)
    if counters.consecutive_skips >= train.fp16_max_skips:
        raise TrainingAbortedError(
            f"paso {step}: {counters.consecutive_skips} pasos seguidos desbordan en fp16 "
            f"(train.fp16_max_skips={train.fp16_max_skips}, escala {short(scale)}); baja "
            "train.lr o train.fp16_init_scale",
            reason=f"{counters.consecutive_skips} desbordes seguidos en fp16",
            first=first,
            last=step,
        )
    if scale < train.fp16_min_scale:
        raise TrainingAbortedError(
            f"paso {step}: la escala de la pérdida ha caído a {short(scale)}, por debajo de "
            f"train.fp16_min_scale={train.fp16_min_scale:g}; los gradientes ya no caben en fp16. "
            "Baja train.lr o usa bf16 si la tarjeta lo tiene",
            reason=f"escala de fp16 {short(scale)}",
            first=first,
            last=step,
        )


def check_spikes(step: int, counters: Counters, scores: Scores, train: TrainConfig) -> None:
    """Detiene un entrenamiento cuya pérdida o gradiente sube y no vuelve.

    Un pico suelto se cuenta y ya está: suelen pasar solos.

    Raises:
        TrainingAbortedError: `train.max_spikes` picos seguidos.
    """
    if not train.max_spikes or counters.consecutive_spikes < train.max_spikes:
        return
    reason = f"{counters.consecutive_spikes} picos seguidos ({describe_spike(scores)})"
    raise TrainingAbortedError(
        f"paso {step}: {reason}, train.max_spikes={train.max_spikes}; el entrenamiento diverge "
        "desde el paso "
        f"{counters.trouble_since}. Baja train.lr, o pon train.rewind: true y repite la orden "
        "(con train.max_spikes: 0 los picos solo se cuentan)",
        reason=reason,
        first=_streak_start(step, counters),
        last=step,
    )


def describe_spike(scores: Scores) -> str:
    """Las dos z de un pico, en palabras."""
    return f"z {number(scores.loss, 1)} en pérdida y {number(scores.grad_norm, 1)} en norma"


def _streak_start(step: int, counters: Counters) -> int:
    return step if counters.trouble_since is None else counters.trouble_since
