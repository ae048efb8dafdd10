"""La salud numérica de fp16: qué se mide. La juzgan las reglas de `health_rules`."""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

FP16_MAX = 65504.0
RULE_OF_THREE = 3
"""Cero fallos en n pruebas solo demuestran, al 95 %, una tasa menor que 3/n (Hanley, 1983)."""

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
FP32_KINDS = ("residuo",)
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
    def room(self) -> float:
        """Los mismos bits, para ordenar: menos infinito si ya desbordó."""
        return -math.inf if self.bits is None else self.bits

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
        sites = (peak for peak in self.activations if peak.kind not in FP32_KINDS)
        return min(sites, key=lambda peak: peak.room)
