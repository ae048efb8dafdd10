"""Picos de la pérdida y del gradiente: cuánto se aparta un paso de los W anteriores.

La puntuación de un valor x frente a una ventana es la z robusta

    z = (x − mediana) / max(1,4826 · MAD, mínimo),    MAD = mediana(|xᵢ − mediana|)

que es la «modified z-score» de Iglewicz y Hoaglin (How to Detect and Handle Outliers, ASQC 1993):
1,4826 · MAD estima la desviación típica de una normal y, a diferencia de ella, no la mueven los
propios picos mientras sean menos de la mitad. De la norma se mira el logaritmo, porque su cola es
larga por arriba. Solo cuentan las subidas. El mínimo evita que, cuando la pérdida casi no se mueve,
una diferencia insignificante sea un pico.
"""

import math
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple, TypeGuard

from enlace.config.schema import TrainConfig
from enlace.errors import CheckpointError

_NORMAL_MAD = 1.4826
"""1 / Φ⁻¹(3/4): desviación típica de una normal por unidad de MAD."""


class Scores(NamedTuple):
    """Las z robustas de un paso: la de la pérdida y la del logaritmo de la norma."""

    loss: float
    grad_norm: float


class SpikeWatch:
    """Compara cada paso con los `train.spike_window` anteriores que movieron los pesos.

    Es una función pura de esos valores, que viajan en el checkpoint. Mientras no hay tantos, nada
    es un pico. Los picos también entran: si la pérdida se queda arriba, acaba siendo lo normal.
    """

    def __init__(self, train: TrainConfig) -> None:
        self._train = train
        self._losses: deque[float] = deque(maxlen=train.spike_window)
        self._norms: deque[float] = deque(maxlen=train.spike_window)

    def observe(self, loss: float, grad_norm: float) -> Scores | None:
        """Puntúa un paso finito y lo apunta; None si no es un pico.

        Args:
            loss: pérdida media, en nats.
            grad_norm: norma del gradiente antes de recortar.
        """
        window, log_norm = self._train.spike_window, math.log(max(grad_norm, sys.float_info.min))
        spike = None
        if window and len(self._losses) == window:
            scores = Scores(self._score(loss, self._losses), self._score(log_norm, self._norms))
            spike = scores if max(scores) > self._train.spike_threshold else None
        self._losses.append(loss)
        self._norms.append(log_norm)
        return spike

    def _score(self, value: float, window: Iterable[float]) -> float:
        return robust_z(value, window, self._train.spike_min_deviation)

    def state_dict(self) -> dict[str, list[float]]:
        """Los valores de la ventana, del más antiguo al más nuevo."""
        return {"losses": list(self._losses), "log_norms": list(self._norms)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Repone una ventana; si ahora es más corta, quedan los últimos valores.

        Raises:
            CheckpointError: no son dos listas de números finitos de igual longitud.
        """
        losses, norms = state.get("losses"), state.get("log_norms")
        if not _numbers(losses) or not _numbers(norms) or len(losses) != len(norms):
            raise CheckpointError("la ventana de los picos está dañada; usa un checkpoint anterior")
        self._losses.clear()
        self._norms.clear()
        self._losses.extend(losses)
        self._norms.extend(norms)


def robust_z(value: float, window: Iterable[float], min_deviation: float) -> float:
    """La z robusta de `value` frente a `window`, que no puede estar vacía."""
    values = list(window)
    center = median(values)
    deviation = _NORMAL_MAD * median(abs(each - center) for each in values)
    return (value - center) / max(deviation, min_deviation)


def _numbers(values: Any) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(
        isinstance(value, float) and math.isfinite(value) for value in values
    )
