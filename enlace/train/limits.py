"""Por qué parar a mitad: una señal, las horas de este arranque o un disco casi lleno."""

import time
from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage
from typing import NamedTuple

from enlace.config.schema import TrainConfig
from enlace.errors import GO_ON
from enlace.figures import number
from enlace.process import StopSignal

_SIGNAL_EXIT = 128


class Reason(NamedTuple):
    """Un motivo, en palabras, y el código de salida que le toca."""

    text: str
    exit_code: int


class Limits:
    """Los límites de un arranque; se miran al acabar cada paso.

    `train.max_hours` cuenta desde aquí y no desde el principio del entrenamiento: «esta noche, ocho
    horas» no depende de cuánto se llevaba.

    Args:
        train: los límites.
        folder: la carpeta cuyo disco se vigila.
        stop: la petición de parar que llega de fuera.
        now: el reloj, en segundos.
    """

    def __init__(
        self,
        train: TrainConfig,
        folder: Path,
        stop: StopSignal,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._train = train
        self._folder = folder
        self._stop = stop
        self._now = now
        self._started = now()

    def reached(self) -> Reason | None:
        """El primer límite alcanzado, o None si se puede seguir."""
        if (signal := self._stop.requested) is not None:
            return Reason(f"la señal {signal}", _SIGNAL_EXIT + signal)
        hours = self._train.max_hours
        if hours and self._now() - self._started >= 3600 * hours:
            return Reason(f"train.max_hours = {hours:g} horas", GO_ON)
        floor = self._train.min_free_megabytes
        if floor and (free := disk_usage(self._folder).free / 1e6) < floor:
            return Reason(
                f"quedar {number(free, 0)} MB libres en el disco de {self._folder} "
                f"(train.min_free_megabytes = {floor:g})",
                GO_ON,
            )
        return None
