"""La energía y el estado de la tarjeta, según NVML, que viene con el controlador de NVIDIA.

Se usa a través de `nvidia-ml-py`, que se instala siempre y nunca es imprescindible: sin él, sin
controlador o si la tarjeta no contesta una pregunta, la respuesta es `None` y el informe dice «no
medido».
"""

import importlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from enlace.preflight.measurement import CardState, EnergyUse

_Source = Literal["contador", "potencia media"]
_MILLI = 1000
_JOULES_PER_KWH = 3_600_000

POWER_LIMIT = "límite de potencia"
THROTTLE_REASONS = {
    0x0004: POWER_LIMIT,
    0x0008: "freno de hardware",
    0x0020: "temperatura (controlador)",
    0x0040: "temperatura (hardware)",
    0x0080: "freno externo de potencia",
}
"""Bits de `nvmlClocksEventReasons` que bajan el reloj con la tarjeta trabajando (nvml.h). Los demás
(en reposo, reloj fijado por el usuario, sincronización, pantalla) no son un freno."""


@dataclass
class Card:
    """Una tarjeta abierta en NVML. Cada pregunta que no contesta vale `None`."""

    nvml: Any
    handle: Any

    @classmethod
    def open(cls, uuid: str | None, nvml: Any = None) -> Self | None:
        """Abre la tarjeta de ese UUID (el de CUDA); `None` si NVML no está o no la conoce."""
        if uuid is None:
            return None
        if nvml is None:
            try:
                nvml = importlib.import_module("pynvml")
            except ImportError:
                return None
        try:
            nvml.nvmlInit()
            name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(name))
        except (nvml.NVMLError, OSError):
            return None

    def joules(self) -> float | None:
        """Energía gastada desde que se cargó el controlador (Volta o posterior)."""
        value = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if value is None else value / _MILLI

    def watts(self) -> float | None:
        """Potencia en este momento."""
        value = self._ask("nvmlDeviceGetPowerUsage")
        return None if value is None else value / _MILLI

    def free_bytes(self) -> int | None:
        """Memoria libre, sin crear un contexto de CUDA."""
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.free)

    def state(self) -> CardState:
        """Reloj, temperatura, límite de potencia y frenos, ahora."""
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        return CardState(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
            max_sm_clock_mhz=self._ask("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
            temperature_c=self._ask("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
            power_limit_watts=None if limit is None else limit / _MILLI,
            throttling=self._throttling(),
        )

    def _throttling(self) -> tuple[str, ...] | None:
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if mask is None:  # el nombre anterior a la versión 12.535 del controlador
            mask = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if mask is None:
            return None
        return tuple(name for bit, name in THROTTLE_REASONS.items() if mask & bit)

    def _ask(self, question: str, constant: str | None = None) -> Any:
        # Las versiones de nvidia-ml-py no tienen todas las mismas preguntas ni constantes.
        with suppress(self.nvml.NVMLError, AttributeError):
            ask: Callable[..., Any] = getattr(self.nvml, question)
            arguments = [] if constant is None else [getattr(self.nvml, constant)]
            return ask(self.handle, *arguments)
        return None


@dataclass
class EnergyMeter:
    """La energía de un tramo: por el contador de la tarjeta o, si no lo tiene, por muestras.

    El tramo es el bloque `with`.
    """

    card: Card | None
    clock: Callable[[], float] = time.perf_counter
    samples: list[float] = field(default_factory=list)
    spent: float | None = None
    _before: float | None = None
    _started: float = 0.0
    _seconds: float = 0.0

    def __enter__(self) -> Self:
        self._before = None if self.card is None else self.card.joules()
        self._started = self.clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = self.clock() - self._started
        after = None if self.card is None or self._before is None else self.card.joules()
        # Un contador parado, o que volvió a cero, no es una medida.
        if after is not None and self._before is not None and after > self._before:
            self.spent = after - self._before

    def sample(self) -> None:
        """Toma una muestra de potencia, por si el contador no está o no anda."""
        if self.card is not None:
            watts = self.card.watts()
            if watts is not None:
                self.samples.append(watts)

    def use(self, total_seconds: float, kwh_price: float) -> EnergyUse | None:
        """La potencia del tramo y lo que gastará el entrenamiento a ese ritmo.

        Args:
            total_seconds: lo que durará el entrenamiento.
            kwh_price: precio del kWh; con 0 no hay coste.
        """
        if self.spent is not None and self._seconds > 0:
            return _energy("contador", self.spent / self._seconds, total_seconds, kwh_price)
        if self.samples:
            watts = sum(self.samples) / len(self.samples)
            return _energy("potencia media", watts, total_seconds, kwh_price)
        return None


def _energy(source: _Source, watts: float, total_seconds: float, kwh_price: float) -> EnergyUse:
    kwh = watts * total_seconds / _JOULES_PER_KWH
    cost = kwh * kwh_price if kwh_price else None
    return EnergyUse(source=source, watts=watts, total_kwh=kwh, cost=cost)
