"""La salud numérica de fp16: qué se mide y con qué reglas se juzga.

Umbrales en `hardware.preflight`. Las reglas son funciones puras sobre los registros.
"""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

from enlace.config.hardware import PreflightConfig
from enlace.config.schema import TrainConfig
from enlace.reports.text import integer, number, percent

FP16_MAX = 65504.0
RULE_OF_THREE = 3
"""Cero fallos en n pruebas solo demuestran, al 95 %, una tasa menor que 3/n (Hanley, 1983)."""
CONFIDENCE = 0.95

ActivationKind = Literal[
    "norma de atención",
    "consulta",
    "clave",
    "atención",
    "salida de atención",
    "norma de FFN",
    "producto SwiGLU",
    "salida de FFN",
    "residuo",
    "norma final",
    "logits",
]
_FP32_KINDS = ("residuo",)
"""Se suman en fp32: pasar de 65504 no desborda, aunque anuncia problemas."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScalePoint(_Record):
    """Un paso hacia atrás con la pérdida multiplicada por 2^exponent."""

    exponent: int
    finite: bool
    lost: dict[str, float]
    """Por grupo de parámetros, fracción de gradientes escalados nulos o subnormales en fp16.

    Solo cuentan los que con la mayor escala finita no son cero; vacío si no es finito."""


class ScaleWindow(_Record):
    """Las escalas que sirven: ni desbordan ni hunden los gradientes."""

    points: tuple[ScalePoint, ...]
    ceiling: int | None
    """Primer exponente que desborda; `None` si ninguno de los probados."""
    floor: int | None
    """Primer exponente que no hunde gradientes de matrices; `None` si todos los hunden."""

    @property
    def top(self) -> int | None:
        """El mayor exponente finito."""
        finite = [point.exponent for point in self.points if point.finite]
        return max(finite, default=None)

    @property
    def bits(self) -> int:
        """Anchura de la ventana: de la menor escala que sirve a la mayor."""
        if self.top is None or self.floor is None:
            return 0
        return max(0, self.top - self.floor)


class ActivationPeak(_Record):
    """La mayor magnitud de una clase de activación en una capa."""

    kind: ActivationKind
    layer: int | None
    """`None` para las que siguen a la última capa."""
    largest: float | None
    """`None` si desbordó."""

    @property
    def bits(self) -> float | None:
        """Cuántas veces se puede doblar antes de 65504; `None` si ya desbordó."""
        if self.largest is None:
            return None
        return math.inf if self.largest == 0 else math.log2(FP16_MAX / self.largest)

    @property
    def where(self) -> str:
        """«salida de FFN de la capa 3» o «logits»."""
        return self.kind if self.layer is None else f"{self.kind} de la capa {self.layer}"


class PrecisionGap(_Record):
    """El mismo lote y los mismos pesos en fp16 y en fp32."""

    loss_difference: float
    """|pérdida fp16 - pérdida fp32| / pérdida fp32."""
    gradient_cosine: float


class LossScaling(_Record):
    """El escalado dinámico durante los pasos de salud, trasladado al entrenamiento de verdad."""

    calibration_skips: int
    """Pasos saltados mientras la escala busca su nivel."""
    steps: int
    """Pasos después de la calibración; 0 si no llegó a encontrar una escala."""
    skips: int
    """De ellos, saltados sin que la escala acabara de crecer."""
    growths: int
    growth_skips: int
    """Crecimientos de la escala, y cuántos costaron un paso saltado."""
    growth_interval: int
    """El del entrenamiento: cada cuántos pasos se intenta crecer."""
    scales: tuple[float, ...]
    """La escala tras cada paso, desde el primero."""

    @property
    def growth_rate(self) -> float:
        """Fracción de pasos que costará en el entrenamiento intentar crecer.

        Si la escala no llegó a crecer se supone lo peor: un salto por intervalo.
        """
        share = self.growth_skips / self.growths if self.growths else 1.0
        return share / self.growth_interval

    @property
    def skip_rate(self) -> float:
        """Fracción de pasos saltados que se espera en el entrenamiento."""
        return (self.skips / self.steps if self.steps else 1.0) + self.growth_rate

    @property
    def bound(self) -> float | None:
        """Cota superior al 95 % de la tasa de saltos si no se vio ninguno: 3/n."""
        if self.skips or not self.steps:
            return None
        return min(1.0, RULE_OF_THREE / self.steps)


class Health(_Record):
    """Todo lo medido sobre la salud de fp16; `None` lo que no se pudo."""

    window: ScaleWindow
    activations: tuple[ActivationPeak, ...]
    gap: PrecisionGap | None
    scaling: LossScaling

    @property
    def tightest(self) -> ActivationPeak:
        """La primera activación fp16 que desbordó o, si ninguna, la más cercana a 65504."""
        return min((p for p in self.activations if p.kind not in _FP32_KINDS), key=_bits)


def judge_health(
    health: Health, limits: PreflightConfig, train: TrainConfig
) -> tuple[list[str], list[str]]:
    """Motivos para no entrenar y avisos, en ese orden. Función pura."""
    reasons: list[str] = []
    warnings: list[str] = []
    for judged in (
        _judge_activations(health, limits),
        _judge_window(health.window, limits, train),
        _judge_gap(health.gap, limits),
        _judge_scaling(health.scaling, limits, train),
    ):
        reasons += judged[0]
        warnings += judged[1]
    return reasons, warnings


def lower_bound(failures: int, trials: int) -> float:
    """La menor tasa que, al 95 %, no se descarta tras ver `failures` en `trials` (Clopper–Pearson).

    Con pocos pasos, un salto suelto no demuestra una tasa alta: solo se rechaza lo demostrado.
    """
    if failures == 0:
        return 0.0
    low, high = 0.0, failures / trials
    for _ in range(60):
        middle = (low + high) / 2
        if _at_least(failures, trials, middle) < 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return low


def _at_least(failures: int, trials: int, rate: float) -> float:
    """P(X ≥ failures) con X binomial(trials, rate)."""
    return 1 - math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures)
    )


def _bits(peak: ActivationPeak) -> float:
    return -math.inf if peak.bits is None else peak.bits


def _magnitude(peak: ActivationPeak) -> float:
    return -_bits(peak)


def _judge_activations(health: Health, limits: PreflightConfig) -> tuple[list[str], list[str]]:
    peak = health.tightest
    if peak.bits is None:
        reason = (
            f"fp16 no puede con este modelo: desborda en {peak.where}; baja model.init_std o usa "
            "bf16 si la tarjeta lo tiene"
        )
        return [reason], []
    seen = (
        f"la mayor activación fp16 ({peak.where}) es {number(peak.largest, 1)}: a "
        f"{number(peak.bits, 1)} bits de 65504"
    )
    if peak.bits < limits.min_activation_bits:
        return [f"{seen}; baja model.init_std o usa bf16 si la tarjeta lo tiene"], []
    warnings = [seen] if peak.bits < limits.warn_activation_bits else []
    residual = max((p for p in health.activations if p.kind in _FP32_KINDS), key=_magnitude)
    if _bits(residual) < limits.warn_activation_bits:
        warnings.append(
            f"el {residual.where} llega a {number(residual.largest, 1)}: se suma en fp32 y no "
            "desborda, pero anuncia problemas"
        )
    return [], warnings


def _judge_window(
    window: ScaleWindow, limits: PreflightConfig, train: TrainConfig
) -> tuple[list[str], list[str]]:
    if window.top is None:
        return ["ninguna escala de la pérdida da gradientes finitos en fp16"], []
    if window.bits < limits.min_window_bits:
        floor = "ninguna" if window.floor is None else f"2^{window.floor}"
        reason = (
            f"la ventana de escalas de fp16 es de {window.bits} bits y "
            f"hardware.preflight.min_window_bits={limits.min_window_bits:g}: la mayor escala "
            f"finita es 2^{window.top} y la menor que no hunde gradientes, {floor}; revisa "
            "model.init_std o usa bf16 si la tarjeta lo tiene"
        )
        return [reason], []
    if window.ceiling is not None and train.fp16_init_scale > 2.0**window.top:
        return [], [
            f"train.fp16_init_scale={train.fp16_init_scale:g} empieza por encima de la mayor "
            f"escala finita: ponla en {2**window.top} y no se saltarán los primeros pasos"
        ]
    if window.floor is not None and train.fp16_init_scale < 2.0**window.floor:
        return [], [
            f"train.fp16_init_scale={train.fp16_init_scale:g} hunde gradientes al empezar; ponla "
            f"en {2 ** ((window.floor + window.top) // 2)}"
        ]
    return [], []


def _judge_gap(gap: PrecisionGap | None, limits: PreflightConfig) -> tuple[list[str], list[str]]:
    if gap is None:
        return [], ["no se pudo comparar fp16 con fp32 en un lote"]
    reasons = []
    if not gap.loss_difference <= limits.max_loss_difference:
        reasons.append(
            f"la pérdida en fp16 difiere de la de fp32 en {percent(gap.loss_difference, 3)} y "
            f"hardware.preflight.max_loss_difference={limits.max_loss_difference:g}"
        )
    if not gap.gradient_cosine >= limits.min_gradient_cosine:
        reasons.append(
            f"el coseno entre los gradientes en fp16 y en fp32 es {number(gap.gradient_cosine, 5)} "
            f"y hardware.preflight.min_gradient_cosine={limits.min_gradient_cosine:g}"
        )
    return reasons, []


def _judge_scaling(
    scaling: LossScaling, limits: PreflightConfig, train: TrainConfig
) -> tuple[list[str], list[str]]:
    if scaling.steps == 0:
        reason = (
            f"fp16 no encontró una escala en {integer(len(scaling.scales))} pasos: saltó "
            f"{integer(scaling.calibration_skips)}; baja "
            f"train.fp16_init_scale={train.fp16_init_scale:g} o sube "
            f"hardware.preflight.health_steps={limits.health_steps}"
        )
        return [reason], []
    seen = (
        f"fp16 saltó {integer(scaling.skips)} de {integer(scaling.steps)} pasos ya calibrados, y "
        f"en el entrenamiento se espera saltar el {percent(scaling.skip_rate, 2)}"
    )
    proved = lower_bound(scaling.skips, scaling.steps)
    if scaling.growths:
        proved += scaling.growth_rate
    if proved > limits.max_skip_rate:
        reason = (
            f"{seen}, más de hardware.preflight.max_skip_rate={limits.max_skip_rate:g}; sube "
            f"train.fp16_growth_interval={train.fp16_growth_interval} o revisa model.init_std"
        )
        return [reason], []
    warnings = [seen] if scaling.skip_rate > limits.warn_skip_rate else []
    if scaling.scales[-1] < limits.warn_scale:
        warnings.append(
            f"la escala de la pérdida acaba en {scaling.scales[-1]:g}, por debajo de "
            f"hardware.preflight.warn_scale={limits.warn_scale:g}: queda poco sitio bajo ella"
        )
    return [], warnings
