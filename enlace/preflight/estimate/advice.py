"""Qué micro-batch y qué checkpointing convienen en una tarjeta, sin cambiar los tokens por paso."""

from collections.abc import Sequence

from enlace.config.schema import Config
from enlace.preflight.estimate.affine import Extrapolation, extrapolate, fewest_rows
from enlace.preflight.estimate.record import Choice
from enlace.preflight.estimate.roofline import Rates

MODES = ("none", "mlp", "block")
MAX_MICRO_BATCH = 256
FRAGMENTATION = 1.10
"""Lo reservado frente a lo vivo en las trazas de los perfiles: 1,02–1,17 (docs/preflight.md)."""
_SAME_SPEED = 0.02
"""Diferencias de velocidad menores que esta no se distinguen en una estimación."""


class Search:
    """Las combinaciones posibles y lo que se espera de cada una.

    Cada checkpointing se traza solo si hace falta: cuesta segundos.

    Args:
        config: la configuración de partida.
        rates: lo que da la tarjeta.
        limit_bytes: lo que puede reservarse sin tocar el margen.
    """

    def __init__(self, config: Config, rates: Rates, limit_bytes: int) -> None:
        self._config = config
        self._rates = rates
        self._limit_bytes = limit_bytes
        self._models: dict[str, Extrapolation] = {}

    def model(self, mode: str) -> Extrapolation:
        """Las trazas pequeñas de ese checkpointing."""
        if mode not in self._models:
            self._models[mode] = extrapolate(with_mode(self._config, mode))
        return self._models[mode]

    def choice(self, mode: str, rows: int) -> Choice:
        """Lo que se espera con ese checkpointing y ese micro-batch."""
        layers, model = self._config.model.n_layer, self.model(mode)
        peak = int(FRAGMENTATION * max(model.live(layers, rows).values()))
        accumulation = self._config.sequences_per_step // rows
        seconds = model.step(layers, rows, self._rates, accumulation)
        return Choice(
            micro_batch=rows,
            activation_checkpointing=mode,
            peak_bytes=peak,
            tokens_per_second=self._config.train.tokens_per_step / seconds,
            fits=peak <= self._limit_bytes,
        )

    def best(self) -> Choice | None:
        """La más rápida que cabe; la de ahora, si no se distingue de ella."""
        sizes = micro_batches(self._config)
        choices = [self.choice("none", rows) for rows in sizes]
        top = max(choice.tokens_per_second for choice in choices)
        fastest = self._fastest(choices)
        # Recalcular solo compensa si deja usar un micro-batch con el que se gane velocidad.
        if fastest is not None and fastest.tokens_per_second >= (1 - _SAME_SPEED) * top:
            return fastest
        choices += [self.choice(mode, rows) for mode in MODES[1:] for rows in sizes]
        return self._fastest(choices)

    def single_change(self) -> Choice | None:
        """La más rápida que cabe cambiando solo el micro-batch o solo el checkpointing."""
        hardware = self._config.hardware
        current, rows = hardware.activation_checkpointing, hardware.micro_batch
        smaller = [size for size in micro_batches(self._config) if size < rows]
        return self._fastest(
            [self.choice(current, size) for size in smaller]
            + [self.choice(mode, rows) for mode in MODES if mode != current]
        )

    def _fastest(self, choices: Sequence[Choice]) -> Choice | None:
        fitting = [choice for choice in choices if choice.fits]
        if not fitting:
            return None
        top = max(choice.tokens_per_second for choice in fitting)
        level = [one for one in fitting if one.tokens_per_second >= (1 - _SAME_SPEED) * top]
        hardware = self._config.hardware
        now = (hardware.micro_batch, hardware.activation_checkpointing)
        kept = [one for one in level if (one.micro_batch, one.activation_checkpointing) == now]
        return kept[0] if kept else max(level, key=lambda choice: choice.tokens_per_second)


def with_mode(config: Config, mode: str) -> Config:
    """La misma configuración con otro checkpointing."""
    hardware = config.hardware.model_copy(update={"activation_checkpointing": mode})
    return config.model_copy(update={"hardware": hardware})


def is_straight(config: Config) -> bool:
    """Si su micro-batch llega al menor del que parten las extrapolaciones."""
    return config.hardware.micro_batch >= fewest_rows(config)


def micro_batches(config: Config) -> list[int]:
    """Los micro-batches extrapolables que reparten exactamente las secuencias de un paso."""
    sequences = config.sequences_per_step
    limit = min(sequences, MAX_MICRO_BATCH)
    return [rows for rows in range(fewest_rows(config), limit + 1) if sequences % rows == 0]
