"""Con qué reglas se juzga la salud de fp16: funciones puras sobre los registros de `health`.

Los umbrales están en `hardware.preflight`.
"""

import math

from enlace.config.hardware import PreflightConfig
from enlace.config.schema import TrainConfig
from enlace.figures import counted, integer, number, percent
from enlace.preflight.health import FP32_KINDS, Health, PrecisionGap, ScaleWindow

CONFIDENCE = 0.95
_OTHER_MODEL = "baja model.init_std o usa bf16 si la tarjeta lo tiene"


def judge_health(
    health: Health, limits: PreflightConfig, train: TrainConfig
) -> tuple[list[str], list[str]]:
    """Motivos para no entrenar y avisos, en ese orden. Función pura.

    Si algo desborda hacia delante o con cualquier escala, solo se dice eso: que además no se
    encuentre escala o no se pueda comparar con fp32 es consecuencia, y su remedio no arregla nada.
    """
    activations = _judge_activations(health, limits)
    if health.tightest.bits is None:
        return activations
    if health.window.top is None:
        reason = f"ninguna escala de la pérdida da gradientes finitos en fp16; {_OTHER_MODEL}"
        return [*activations[0], reason], activations[1]
    reasons: list[str] = []
    warnings: list[str] = []
    for judged in (
        activations,
        _judge_window(health.window, limits),
        _judge_gap(health.gap, limits),
        _judge_scaling(health, limits, train),
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


def _judge_activations(health: Health, limits: PreflightConfig) -> tuple[list[str], list[str]]:
    peak = health.tightest
    if peak.bits is None:
        return [f"fp16 no puede con este modelo: desborda en {peak.where}; {_OTHER_MODEL}"], []
    seen = (
        f"la mayor activación fp16 ({peak.where}) es {number(peak.largest, 1)}: a "
        f"{number(peak.bits, 1)} bits de 65504"
    )
    if peak.bits < limits.min_activation_bits:
        return [f"{seen}; {_OTHER_MODEL}"], []
    warnings = [seen] if peak.bits < limits.warn_activation_bits else []
    residual = min(
        (peak for peak in health.activations if peak.kind in FP32_KINDS), key=lambda peak: peak.room
    )
    if residual.room < limits.warn_activation_bits:
        warnings.append(
            f"el {residual.where} llega a {number(residual.largest, 1)}: se suma en fp32 y no "
            "desborda, pero anuncia problemas"
        )
    return [], warnings


def _judge_window(window: ScaleWindow, limits: PreflightConfig) -> tuple[list[str], list[str]]:
    if window.bits >= limits.min_window_bits:
        return [], []
    floor = "ninguna" if window.floor is None else f"2^{window.floor}"
    reason = (
        f"la ventana de escalas de fp16 es de {window.bits} bits y "
        f"hardware.preflight.min_window_bits={limits.min_window_bits:g}: la mayor escala "
        f"finita es 2^{window.top} y la menor que no hunde gradientes, {floor}; {_OTHER_MODEL}"
    )
    return [reason], []


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
    health: Health, limits: PreflightConfig, train: TrainConfig
) -> tuple[list[str], list[str]]:
    scaling = health.scaling
    advice = _scale_advice(health.window, train)
    if scaling.steps == 0:
        tried = counted(len(scaling.scales), "paso")
        more = f"sube hardware.preflight.health_steps={limits.health_steps}"
        return [f"fp16 no encontró una escala en {tried}; {advice or more}"], []
    seen = (
        f"fp16, ya calibrado, saltó {integer(scaling.skips)} de {counted(scaling.steps, 'paso')}, "
        f"y en el entrenamiento se espera saltar el {percent(scaling.skip_rate, 2)}"
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
    warnings = [] if advice is None else [f"fp16 no empieza en una escala que sirva: {advice}"]
    if scaling.skip_rate > limits.warn_skip_rate:
        warnings.append(seen)
    if scaling.scales[-1] < limits.warn_scale:
        warnings.append(
            f"la escala de la pérdida acaba en {number(scaling.scales[-1], 2)}, por debajo de "
            f"hardware.preflight.warn_scale={limits.warn_scale:g}: queda poco sitio bajo ella"
        )
    return [], warnings


def _scale_advice(window: ScaleWindow, train: TrainConfig) -> str | None:
    """Qué cambiar en `train.fp16_*` para empezar dentro de la ventana; `None` si ya se empieza."""
    if window.top is None or window.floor is None:
        return None
    start, lowest = train.fp16_init_scale, train.fp16_min_scale
    if window.ceiling is not None and lowest > 2.0**window.top:
        return (
            f"la mayor escala finita es 2^{window.top} y train.fp16_min_scale={lowest:g} no deja "
            "bajar hasta ella: bájala"
        )
    if window.ceiling is not None and start > 2.0**window.top:
        return (
            f"train.fp16_init_scale={start:g} pasa de la mayor escala finita, 2^{window.top}: "
            f"ponla en {2**window.top}"
        )
    if start < 2.0**window.floor:
        middle = 2 ** ((window.floor + window.top) // 2)
        return f"train.fp16_init_scale={start:g} hunde gradientes: ponla en {middle}"
    return None
