"""Cuánto tarda una traza en una tarjeta, operación por operación (modelo *roofline*).

Cada núcleo tarda lo que más le cueste: calcular, mover sus bytes o ser lanzado.

    t = máx(FLOP / (eficacia · P), bytes / (0,8 · ancho de banda), 4 µs)

P es el pico denso con acumulación en fp32, que es como multiplica cuBLAS al entrenar. Las eficacias
son supuestos, no medidas: 0,7 en productos grandes; 0,45 en atención (mem_efficient en Turing va
unas dos veces más lento que FlashAttention-2, README de triton-turing); 0,8 del ancho de banda en
lo demás. Con `torch.compile` las operaciones elemento a elemento de un bloque se funden y mueven
menos bytes; cuánto menos depende de Inductor, y aquí se supone que un 40 % de los de ahora.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from enlace.preflight.estimate.costs import Cost, Kind
from enlace.preflight.estimate.recorder import BACKWARD, EVALUATION, FORWARD, OPTIMIZER, Trace
from enlace.preflight.estimate.trace import TRACED_STEPS

LAUNCH_SECONDS = 4e-6
EFFICIENCY: Mapping[Kind, float] = {
    "gemm": 0.7,
    "gemm_fp32": 0.7,
    "attention": 0.45,
    "pointwise": 0.8,
}
BANDWIDTH_EFFICIENCY = 0.8
FUSED_POINTWISE = 0.4
SLOWEST = 0.6
FASTEST = 1.2
"""El intervalo de velocidad, respecto a la estimada: los supuestos son más bien optimistas."""


@dataclass(frozen=True)
class Rates:
    """Lo que una tarjeta da de sí: FLOP/s de pico y bytes/s; `fused`, si se compila.

    `flops` son los de la precisión con la que se entrena; `fp32_flops`, los de lo que se queda en
    fp32.
    """

    flops: float
    fp32_flops: float
    bandwidth: float
    fused: bool = False

    def seconds(self, cost: Cost) -> float:
        """El tiempo de un núcleo."""
        peak = self.fp32_flops if cost.kind == "gemm_fp32" else self.flops
        computing = cost.flops / (EFFICIENCY[cost.kind] * peak)
        moving = cost.bytes / (BANDWIDTH_EFFICIENCY * self.bandwidth)
        if self.fused and cost.kind == "pointwise":
            return FUSED_POINTWISE * max(moving, LAUNCH_SECONDS)
        return max(computing, moving, LAUNCH_SECONDS)


@dataclass(frozen=True)
class StepTime:
    """Segundos de un micro-batch (ida y vuelta), del optimizador y de un lote de validación."""

    micro_batch: float
    optimizer: float
    evaluation: float
    shares: Mapping[Kind, float]
    """Qué parte del micro-batch se va en cada tipo de núcleo."""

    def step(self, accumulation: int) -> float:
        """Un paso de optimizador entero."""
        return accumulation * self.micro_batch + self.optimizer


def step_time(trace: Trace, rates: Rates, micro_batches: int) -> StepTime:
    """El tiempo del último paso de la traza, que lleva `micro_batches` micro-batches."""
    last = TRACED_STEPS - 1
    by_kind: Counter[Kind] = Counter()
    for phase in (FORWARD, BACKWARD):
        for cost, count in trace.work[last, phase].items():
            by_kind[cost.kind] += count * rates.seconds(cost)  # type: ignore[assignment]
    total = sum(by_kind.values())
    return StepTime(
        micro_batch=total / micro_batches,
        optimizer=_total(trace.work[last, OPTIMIZER], rates),
        evaluation=_total(trace.work[TRACED_STEPS, EVALUATION], rates),
        shares={kind: seconds / total for kind, seconds in by_kind.items()},
    )


def _total(work: Counter[Cost], rates: Rates) -> float:
    return sum(count * rates.seconds(cost) for cost, count in work.items())
