"""Lo que cambia durante un entrenamiento: el modelo y su optimizador, y las cuentas del camino."""

from dataclasses import dataclass, field

import torch

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.model.transformer import Transformer
from enlace.train.spikes import SpikeWatch


@dataclass
class Counters:
    """Las cuentas que un checkpoint conserva.

    La regla de los pasos saltados: `step` avanza siempre, porque numera los batches y la tasa de
    aprendizaje, y un batch no se repite; `optimizer_steps` solo avanza cuando los pesos cambian,
    y es también la cuenta con la que Adam corrige su sesgo.

    Attributes:
        step: pasos de datos dados.
        tokens: tokens leídos en ellos.
        optimizer_steps: actualizaciones de los pesos.
        skipped: pasos sin actualización porque fp16 desbordó.
        consecutive_skips: los últimos seguidos de esos.
        spikes: pasos en los que la pérdida o el gradiente dieron un pico.
        consecutive_spikes: los de la racha actual de pasos malos (picos o saltos).
        trouble_since: primer paso (desde 0) de esa racha; None si el último fue normal.
        empty: pasos sin actualización porque no había ningún objetivo que predecir.
    """

    step: int = 0
    tokens: int = 0
    optimizer_steps: int = 0
    skipped: int = 0
    consecutive_skips: int = 0
    spikes: int = 0
    consecutive_spikes: int = 0
    trouble_since: int | None = None
    empty: int = 0


@dataclass
class Training:
    """Todo lo que un paso necesita, tal como lo monta `build_training`."""

    config: Config
    backend: Backend
    model: Transformer
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    watch: SpikeWatch
    counters: Counters = field(default_factory=Counters)
