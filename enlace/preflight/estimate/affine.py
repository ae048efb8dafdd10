"""Pasar de trazas pequeñas a modelos grandes: todo crece en línea recta con capas y secuencias.

Las capas son idénticas y las secuencias independientes, así que los bytes vivos de un punto del
paso son c₀ + c₁·L + c₂·B + c₃·L·B, y los segundos también salvo por el coste fijo de lanzar un
núcleo. Cuatro trazas pequeñas fijan los cuatro coeficientes de cada fase. Lo reservado no es recto
(depende de cómo encajan los bloques): se aproxima con el sobrante que tenía la traza mayor.

Letras: L capas, B secuencias de un micro-batch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from enlace.config.schema import Config
from enlace.preflight.estimate.memory import Peaks, replay
from enlace.preflight.estimate.recorder import Trace
from enlace.preflight.estimate.roofline import Rates, StepTime, step_time
from enlace.preflight.estimate.trace import TRACED_MICRO_BATCHES, trace_training

LAYERS = (2, 4)


@dataclass(frozen=True)
class Corner:
    """Una de las cuatro trazas: sus tamaños y lo que se vio en ella."""

    layers: int
    rows: int
    trace: Trace
    peaks: Peaks


@dataclass(frozen=True)
class Extrapolation:
    """Las cuatro trazas de una configuración, y lo que predicen para otros L y B."""

    corners: tuple[Corner, Corner, Corner, Corner]
    micro_batches: int

    def live(self, layers: int, rows: int) -> dict[str, int]:
        """Pico de bytes vivos de cada fase."""

        def peak(phase: str) -> int:
            return round(self._at(layers, rows, lambda corner: corner.peaks.live[phase]))

        return {phase: peak(phase) for phase in self.corners[0].peaks.live}

    def step(self, layers: int, rows: int, rates: Rates, accumulation: int) -> float:
        """Segundos de un paso."""
        micro_batch = self._at(layers, rows, lambda corner: self._time(corner, rates).micro_batch)
        return accumulation * micro_batch + self.optimizer(layers, rows, rates)

    def optimizer(self, layers: int, rows: int, rates: Rates) -> float:
        """Segundos del optimizador en un paso."""
        return self._at(layers, rows, lambda corner: self._time(corner, rates).optimizer)

    def _time(self, corner: Corner, rates: Rates) -> StepTime:
        return step_time(corner.trace, rates, self.micro_batches)

    def _at(self, layers: int, rows: int, value: Callable[[Corner], float]) -> float:
        """Interpolación bilineal de `value`, prolongada fuera de las cuatro esquinas."""
        low, high = self.corners[0], self.corners[3]
        u = (layers - low.layers) / (high.layers - low.layers)
        v = (rows - low.rows) / (high.rows - low.rows)
        a, b, c, d = (value(corner) for corner in self.corners)
        return a * (1 - u) * (1 - v) + b * u * (1 - v) + c * (1 - u) * v + d * u * v


def extrapolate(config: Config) -> Extrapolation:
    """Traza las cuatro esquinas: 2 y 4 capas, y el menor micro-batch recto y su doble."""
    fewest = fewest_rows(config)
    micro_batches = min(TRACED_MICRO_BATCHES, config.accumulation)
    corners = []
    for rows in (fewest, 2 * fewest):
        for layers in LAYERS:
            trace = trace_training(resized(config, layers, rows, micro_batches))
            corners.append(Corner(layers, rows, trace, replay(trace.events)))
    return Extrapolation((corners[0], corners[1], corners[2], corners[3]), micro_batches)


def fewest_rows(config: Config) -> int:
    """El menor micro-batch que llena dos bloques de filas de la pérdida.

    Desde el segundo bloque conviven dos tampones de logits enteros; con menos filas son uno, o más
    pequeños, y las cuentas dejan de ser una recta.
    """
    return math.ceil(2 * config.hardware.loss_chunk_rows / config.model.seq_len)


def resized(config: Config, layers: int, rows: int, micro_batches: int) -> Config:
    """La misma configuración con otras capas y otro micro-batch, y un paso de `micro_batches`."""
    tokens = micro_batches * rows * config.model.seq_len
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"n_layer": layers}),
            "hardware": config.hardware.model_copy(update={"micro_batch": rows}),
            "train": config.train.model_copy(update={"tokens_per_step": tokens}),
        }
    )
