"""El escalado dinámico en marcha: cuántos pasos saltará el entrenamiento.

Cada paso de salud usa un solo micro-batch, para que doscientos quepan en un par de minutos. La
pérdida se divide entonces entre menos objetivos y los gradientes son `acumulación` veces mayores:
empezando con una escala `acumulación` veces menor, todo lo que ve fp16 es igual. El intervalo de
crecimiento se acorta para que la escala crezca y tope varias veces, y se traslada al de verdad.
"""

from collections.abc import Sequence

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.errors import TrainingAbortedError
from enlace.preflight.health import LossScaling
from enlace.preflight.synthetic import SyntheticStream
from enlace.train.trainer import build_training, train_step

_GROWTHS = 10
"""En cuántos intervalos se parten los pasos de salud."""
_SHORTEST_INTERVAL = 2


def probe_scaling(config: Config, backend: Backend) -> LossScaling:
    """Da `hardware.preflight.health_steps` pasos y cuenta los saltos.

    Un entrenamiento que se detiene por no encontrar escala acaba la sonda, con 0 pasos calibrados.
    """
    short = scaling_config(config)
    training, stream = build_training(short, backend), SyntheticStream(short)
    scales, skipped = [], []
    for step in range(config.hardware.preflight.health_steps):
        try:
            result = train_step(training, stream.batch(step), step)
        except TrainingAbortedError:
            scales.append(training.scaler.get_scale())
            skipped.append(True)
            break
        scales.append(result.scale)
        skipped.append(result.skipped)
    return read_trajectory(
        scales,
        skipped,
        start=short.train.fp16_init_scale,
        interval=short.train.fp16_growth_interval,
        config=config,
    )


def scaling_config(config: Config) -> Config:
    """La configuración de los pasos de salud: un micro-batch por paso e intervalo corto."""
    train, accumulation = config.train, config.accumulation
    health_steps = config.hardware.preflight.health_steps
    interval = min(train.fp16_growth_interval, max(_SHORTEST_INTERVAL, health_steps // _GROWTHS))
    changes = {
        "tokens_per_step": config.hardware.micro_batch * config.model.seq_len,
        "fp16_init_scale": train.fp16_init_scale / accumulation,
        "fp16_min_scale": train.fp16_min_scale / accumulation,
        "fp16_growth_interval": interval,
    }
    return config.model_copy(update={"train": train.model_copy(update=changes)})


def read_trajectory(
    scales: Sequence[float], skipped: Sequence[bool], start: float, interval: int, config: Config
) -> LossScaling:
    """Separa la calibración, los saltos por haber crecido y los demás.

    La calibración acaba cuando la escala aguanta `interval` pasos seguidos. Después, un salto con
    la escala recién crecida es el precio de haberlo intentado; con una escala que ya había
    aguantado, o que acaba de bajar, es un salto de verdad.

    Args:
        scales: la escala tras cada paso.
        skipped: si cada paso se saltó.
        start: la escala antes del primero.
        interval: pasos buenos antes de crecer en la sonda.
        config: la configuración del entrenamiento, a la que se traslada la cuenta.
    """
    calibrated, good = len(skipped), 0
    for step, skip in enumerate(skipped):
        good = 0 if skip else good + 1
        if good == interval:
            calibrated = step + 1
            break
    skips = growths = growth_skips = 0
    before = [start, *scales]
    grown = calibrated < len(scales) and before[calibrated] > before[calibrated - 1]
    growths += grown
    for step in range(calibrated, len(scales)):
        if skipped[step]:
            growth_skips += grown
            skips += not grown
            grown = False
        elif scales[step] > before[step]:
            grown = True
            growths += 1
    return LossScaling(
        calibration_skips=sum(skipped[:calibrated]),
        steps=len(scales) - calibrated,
        skips=skips,
        growths=growths,
        growth_skips=growth_skips,
        growth_interval=config.train.fp16_growth_interval,
        scales=tuple(scale * config.accumulation for scale in scales),
    )
