"""Qué micro-batch y qué checkpointing convienen en una tarjeta, sin cambiar los tokens por paso."""

from collections.abc import Sequence

from enlace.config.schema import Config
from enlace.preflight.estimate.affine import Extrapolation, extrapolate, fewest_rows
from enlace.preflight.estimate.record import Choice
from enlace.preflight.estimate.roofline import Rates

MODES = ("none", "mlp", "block")
MAX_MICRO_BATCH = 256
FRAGMENTATION = 1.10
"""Lo reservado frente a lo vivo en las trazas de los perfiles: 1,02–1,18 (docs/preflight.md)."""
_SAME_SPEED = 0.02
"""Diferencias de velocidad menores que esta no se distinguen en una estimación."""


class Models:
    """Las trazas pequeñas de una configuración con cada checkpointing, cada una solo si hace falta.

    Cuestan segundos, y sirven para cualquier micro-batch.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._known: dict[tuple[str, bool], Extrapolation] = {}

    def of(self, config: Config) -> Extrapolation:
        """Las de `config`, que solo se aparta de la de partida en el micro-batch o el modo."""
        hardware = config.hardware
        return self.mode(hardware.activation_checkpointing, accumulates=config.accumulation > 1)

    def mode(self, mode: str, *, accumulates: bool = True) -> Extrapolation:
        """Las de un checkpointing; con un solo micro-batch por paso los picos son otros."""
        if (mode, accumulates) not in self._known:
            rows = 1 if accumulates else self._config.sequences_per_step
            self._known[mode, accumulates] = extrapolate(changed(self._config, mode, rows))
        return self._known[mode, accumulates]


class Search:
    """Las combinaciones posibles y lo que se espera de cada una.

    Args:
        config: la configuración de partida.
        models: sus trazas pequeñas.
        rates: lo que da la tarjeta.
        limit_bytes: lo que puede reservarse sin tocar el margen.
        fits_now: si la de partida cabe con su margen, que se sabe mejor que extrapolando.
    """

    def __init__(
        self, config: Config, models: Models, rates: Rates, limit_bytes: int, *, fits_now: bool
    ) -> None:
        self._fits_now = fits_now
        self._config = config
        self._models = models
        self._rates = rates
        self._limit_bytes = limit_bytes

    def choice(self, mode: str, rows: int) -> Choice:
        """Lo que se espera con ese checkpointing y ese micro-batch."""
        # Con un solo micro-batch por paso sobra lo de los gradientes: no merece otras trazas.
        layers, model = self._config.model.n_layer, self._models.mode(mode)
        peak = int(FRAGMENTATION * max(model.live(layers, rows).values()))
        accumulation = self._config.sequences_per_step // rows
        seconds = model.step(layers, rows, self._rates, accumulation)
        return Choice(
            micro_batch=rows,
            activation_checkpointing=mode,
            peak_bytes=peak,
            tokens_per_second=self._config.train.tokens_per_step / seconds,
            fits=self._fits_now if (rows, mode) == self._now() else peak <= self._limit_bytes,
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

    def _fastest(self, choices: Sequence[Choice]) -> Choice | None:
        fitting = [choice for choice in choices if choice.fits]
        if not fitting:
            return None
        top = max(choice.tokens_per_second for choice in fitting)
        level = [one for one in fitting if one.tokens_per_second >= (1 - _SAME_SPEED) * top]
        now = self._now()
        kept = [one for one in level if (one.micro_batch, one.activation_checkpointing) == now]
        return kept[0] if kept else max(level, key=lambda choice: choice.tokens_per_second)

    def _now(self) -> tuple[int, str]:
        hardware = self._config.hardware
        return hardware.micro_batch, hardware.activation_checkpointing


def changed(config: Config, mode: str, rows: int) -> Config:
    """La misma configuración con otro checkpointing y otro micro-batch."""
    update = {"activation_checkpointing": mode, "micro_batch": rows}
    return config.model_copy(update={"hardware": config.hardware.model_copy(update=update)})


def is_straight(config: Config) -> bool:
    """Si su micro-batch llega al menor del que parten las extrapolaciones."""
    return config.hardware.micro_batch >= fewest_rows(config)


def micro_batches(config: Config) -> list[int]:
    """Los micro-batches extrapolables que reparten exactamente las secuencias de un paso."""
    sequences = config.sequences_per_step
    limit = min(sequences, MAX_MICRO_BATCH)
    return [rows for rows in range(fewest_rows(config), limit + 1) if sequences % rows == 0]
