"""Las reglas numéricas: cuándo un paso no debe tocar los pesos y cuándo hay que parar."""

import math

from enlace.config.schema import TrainConfig
from enlace.errors import TrainingAbortedError
from enlace.train.state import Counters


def is_finite_step(loss: float, grad_norm: float) -> bool:
    """Si la pérdida y la norma del gradiente permiten actualizar los pesos.

    Basta con la norma para ver un inf o un NaN en cualquier gradiente; una norma que desborda con
    gradientes finitos tampoco sirve, porque el recorte los anularía.
    """
    return math.isfinite(loss) and math.isfinite(grad_norm)


def abort_non_finite(step: int, loss: float, grad_norm: float) -> TrainingAbortedError:
    """El error de un paso no finito en fp32 o bf16, donde no hay escala que bajar."""
    return TrainingAbortedError(
        f"paso {step}: pérdida {loss} y norma de gradiente {grad_norm}; los pesos no se han tocado "
        "y el último checkpoint sigue intacto. Baja train.lr o alarga train.warmup"
    )


def check_loss_scale(step: int, counters: Counters, scale: float, train: TrainConfig) -> None:
    """Detiene un entrenamiento en fp16 cuya escala de pérdida no encuentra sitio.

    Raises:
        TrainingAbortedError: demasiados saltos seguidos, o escala por debajo del mínimo.
    """
    if counters.consecutive_skips >= train.fp16_max_skips:
        raise TrainingAbortedError(
            f"paso {step}: {counters.consecutive_skips} pasos seguidos desbordan en fp16 "
            f"(train.fp16_max_skips={train.fp16_max_skips}, escala {scale:g}); baja train.lr o "
            "train.fp16_init_scale"
        )
    if scale < train.fp16_min_scale:
        raise TrainingAbortedError(
            f"paso {step}: la escala de la pérdida ha caído a {scale:g}, por debajo de "
            f"train.fp16_min_scale={train.fp16_min_scale:g}; los gradientes ya no caben en fp16. "
            "Baja train.lr o usa bf16 si la tarjeta lo tiene"
        )
