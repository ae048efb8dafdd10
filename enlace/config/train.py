"""La receta: qué se puede decidir en `train`."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from enlace.config.fields import (
    Count,
    CountOrZero,
    DigestOrEmpty,
    Fraction,
    Name,
    Positive,
    PositiveOrZero,
    Section,
    SettingError,
    StepsOrFraction,
    Text,
)

MUON_ONLY = ("muon_momentum", "muon_steps", "muon_adamw_lr_ratio")
"""Claves que con AdamW no se usan, y por eso tampoco cuentan en la identidad."""
Command = Annotated[tuple[Text, ...], Field(strict=False)]


class TrainConfig(Section):
    """La receta: cuántos tokens, con qué optimizador y con qué calendario."""

    operational = frozenset(
        {
            "name",
            "init_from",
            "log_every",
            "eval_every",
            "eval_tokens",
            "save_every",
            "keep_last",
            "keep_every",
        }
        | {"save_background", "save_retries", "save_retry_seconds", "max_failed_saves"}
        # Un accidente y su vuelta atrás quedan escritos en el manifiesto: no hace falta que lo que
        # podría haber pasado sea otro entrenamiento, y así se puede activar a mitad de uno.
        | {"spike_window", "spike_threshold", "spike_min_deviation", "max_spikes"}
        | {"rewind", "max_rewinds", "rewind_skip"}
        | {"max_hours", "min_free_megabytes", "on_finish", "on_fail", "hook_seconds"}
    )

    name: Name = Field(description="nombre de la receta")
    seed: CountOrZero = Field(description="semilla de pesos, orden de datos y dropout")
    init_from: str = Field(
        description="checkpoint o modelo del que se parte; vacío para empezar de cero"
    )
    init_sha256: DigestOrEmpty = Field(
        description="resumen de lo que se toma de init_from; lo escribe `make params`"
    )
    init_state: Literal["weights", "all"] = Field(
        description="qué se toma: los pesos, o también el optimizador y el paso"
    )
    steps: Count = Field(description="pasos de optimizador")
    tokens_per_step: Count = Field(description="tokens por paso de optimizador")
    optimizer: Literal["adamw", "muon"] = Field(
        description="optimizador; muon es para las matrices de los bloques, y lo demás va con AdamW"
    )
    lr: Positive = Field(description="tasa de aprendizaje máxima")
    beta1: Fraction = Field(description="beta1 de AdamW")
    beta2: Fraction = Field(description="beta2 de AdamW")
    eps: Positive = Field(description="épsilon de AdamW")
    weight_decay: PositiveOrZero = Field(description="decaimiento de las matrices")
    muon_momentum: Fraction = Field(description="memoria del gradiente de Muon; solo con muon")
    muon_steps: Count = Field(description="iteraciones de Newton–Schulz; solo con muon")
    muon_adamw_lr_ratio: Positive = Field(
        description="tasa de lo que Muon deja a AdamW, como fracción de train.lr; solo con muon"
    )
    grad_clip: Positive = Field(description="norma máxima del gradiente")
    schedule: Literal["wsd", "cosine"] = Field(description="forma de la tasa de aprendizaje")
    warmup: StepsOrFraction = Field(description="calentamiento")
    decay: StepsOrFraction = Field(description="decaimiento final")
    decay_shape: Literal["linear", "sqrt"] = Field(description="forma del decaimiento de WSD")
    final_lr_fraction: Fraction = Field(description="tasa final como fracción de la máxima")
    fp16_init_scale: Positive = Field(description="escala inicial de la pérdida en fp16")
    fp16_growth_interval: Count = Field(description="pasos buenos antes de doblar la escala")
    fp16_min_scale: Positive = Field(
        description="escala por debajo de la cual se detiene el entrenamiento"
    )
    fp16_max_skips: Count = Field(
        description="pasos saltados seguidos que detienen el entrenamiento"
    )
    spike_window: CountOrZero = Field(
        description="pasos anteriores con los que se compara cada uno para ver un pico; "
        "con 0, no se mira"
    )
    spike_threshold: Positive = Field(
        description="desviaciones sobre la mediana desde las que un paso es un pico"
    )
    spike_min_deviation: Positive = Field(
        description="desviación mínima, en nats de pérdida y en logaritmo de la norma"
    )
    max_spikes: CountOrZero = Field(
        description="picos seguidos que detienen el entrenamiento; con 0, solo se cuentan"
    )
    rewind: bool = Field(
        description="ante un accidente numérico, volver a un checkpoint anterior en vez de parar"
    )
    max_rewinds: Count = Field(description="vueltas atrás de un entrenamiento, como mucho")
    rewind_skip: CountOrZero = Field(
        description="lotes anteriores al accidente que tampoco se repiten"
    )
    log_every: Count = Field(description="pasos entre registros")
    eval_every: Count = Field(description="pasos entre validaciones")
    eval_tokens: Count = Field(description="tokens de validación durante el entrenamiento")
    save_every: Count = Field(description="pasos entre checkpoints")
    keep_last: Count = Field(description="checkpoints recientes que se conservan")
    keep_every: CountOrZero = Field(
        description="pasos entre checkpoints que no se borran; con 0, ninguno"
    )
    save_background: bool = Field(description="escribir los checkpoints mientras se entrena")
    save_retries: CountOrZero = Field(description="nuevos intentos de un guardado que falla")
    save_retry_seconds: PositiveOrZero = Field(
        description="espera antes del primer nuevo intento, en segundos; después se dobla"
    )
    max_failed_saves: Count = Field(
        description="guardados fallidos seguidos que detienen el entrenamiento"
    )
    max_hours: PositiveOrZero = Field(
        description="horas de cada arranque, tras las que guarda y para; con 0, sin límite"
    )
    min_free_megabytes: PositiveOrZero = Field(
        description="MB libres en el disco por debajo de los cuales guarda y para"
    )
    on_finish: Command = Field(
        description="orden y argumentos que se ejecutan al terminar; vacío, ninguna"
    )
    on_fail: Command = Field(
        description="orden y argumentos que se ejecutan al fallar o parar; vacío, ninguna"
    )
    hook_seconds: Positive = Field(description="segundos que se espera a esas órdenes")

    @property
    def warmup_steps(self) -> int:
        """Pasos de calentamiento, ya resuelta la fracción."""
        return _resolve_steps(self.warmup, self.steps)

    @property
    def decay_steps(self) -> int:
        """Pasos de decaimiento de WSD; con coseno, todos los que siguen al calentamiento."""
        if self.schedule == "cosine":
            return self.steps - self.warmup_steps
        return _resolve_steps(self.decay, self.steps)

    def identity_values(self) -> dict[str, Any]:
        """Como en las demás secciones, con calentamiento y decaimiento ya en pasos."""
        resolved: dict[str, Any] = {"warmup": self.warmup_steps, "decay": self.decay_steps}
        if not self.init_sha256:
            resolved["init_state"] = None  # de cero, lo que se tomaría da igual
        if self.optimizer != "muon":
            resolved |= dict.fromkeys(MUON_ONLY)
        return super().identity_values() | resolved

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.warmup_steps > self.steps:
            raise SettingError(
                f"train.warmup = {self.warmup_steps} pasos no cabe en train.steps = {self.steps}; "
                "reduce train.warmup o alarga train.steps"
            )
        if self.warmup_steps + self.decay_steps > self.steps:
            raise SettingError(
                f"train.warmup = {self.warmup_steps} pasos y train.decay = {self.decay_steps} "
                f"pasos no caben juntos en train.steps = {self.steps}; reduce train.warmup o "
                "train.decay, o alarga train.steps"
            )
        return self

    @model_validator(mode="after")
    def _parent_is_named(self) -> Self:
        if self.init_sha256 and not self.init_from:
            raise SettingError(
                f"train.init_sha256 = {self.init_sha256} sin train.init_from; pon en "
                "train.init_from de dónde se parte, o vacía los dos para empezar de cero"
            )
        return self

    @model_validator(mode="after")
    def _spikes_fit_in_window(self) -> Self:
        if self.spike_window and 2 * self.max_spikes > self.spike_window:
            raise SettingError(
                f"train.max_spikes = {self.max_spikes} pasa de la mitad de train.spike_window = "
                f"{self.spike_window}: para entonces la mediana ya sería la de los picos; baja el "
                "primero o sube la segunda"
            )
        return self

    @model_validator(mode="after")
    def _scale_starts_above_floor(self) -> Self:
        if self.fp16_init_scale < self.fp16_min_scale:
            raise SettingError(
                f"train.fp16_init_scale = {self.fp16_init_scale} empieza por debajo de "
                f"train.fp16_min_scale = {self.fp16_min_scale}; sube la primera o baja la segunda"
            )
        return self


def _resolve_steps(value: int | float, steps: int) -> int:
    return value if isinstance(value, int) else round(value * steps)
