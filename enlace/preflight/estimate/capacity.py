"""Cuánta memoria pediría una configuración, cuánta hay y si cabe."""

from enlace.config.schema import Config
from enlace.model.cost import checkpoint_bytes
from enlace.preflight.estimate.advice import FRAGMENTATION, Models, is_straight
from enlace.preflight.estimate.memory import (
    Peaks,
    combined,
    replay,
    replay_on_heap,
    resumed,
    workspace_bytes,
)
from enlace.preflight.estimate.record import Fit, MemoryEstimate, PhaseMemory
from enlace.preflight.estimate.recorder import Trace
from enlace.preflight.estimate.trace import trace_training

GIB = 1 << 30
CUDA_CONTEXT = 350 << 20
"""Lo que CUDA ocupa en la tarjeta fuera del asignador: unos 300 MB con carga perezosa (pytorch
#107667), más las bibliotecas. El escritorio, si lo hay, va aparte (0,3–0,8 GiB)."""
MAX_TRACED_CHUNKS = 256
"""Con más bloques de la pérdida por micro-batch no merece trazar el modelo entero."""
CPU_RETENTION = 1.5
"""RAM retenida frente a la viva en CPU, con el montón simulado: 1,1–1,9 (docs/preflight.md)."""
WORTH_TRACING = 1.25
"""Por encima de tantas veces la memoria que hay, basta la extrapolación para decir que no cabe."""


def budget_bytes(config: Config) -> int:
    """La memoria del perfil, menos el contexto de CUDA."""
    context = CUDA_CONTEXT if config.hardware.device == "cuda" else 0
    return int(config.hardware.memory_gib * GIB) - context


def margin_bytes(config: Config) -> int:
    """Lo que `hardware.memory_margin` pide dejar libre."""
    return int(config.hardware.memory_margin * config.hardware.memory_gib * GIB)


def estimate_memory(config: Config, models: Models | None) -> tuple[MemoryEstimate, Trace | None]:
    """La memoria, de la traza del modelo entero o, si no hay esperanza o es enorme, extrapolada.

    Args:
        config: la configuración.
        models: las trazas pequeñas, si se van a usar de todos modos; sin ellas solo se extrapola en
            CPU y cuando trazar el modelo entero sería larguísimo.

    Returns:
        La memoria, y la traza si la hubo.
    """
    hardware, model = config.hardware, config.model
    chunks = hardware.micro_batch * model.seq_len / hardware.loss_chunk_rows
    is_cpu, is_huge = hardware.device != "cuda", chunks > MAX_TRACED_CHUNKS
    if is_straight(config) and (is_huge if is_cpu else models is not None):
        small = (models or Models(config)).of(config)
        live = small.live(model.n_layer, hardware.micro_batch)
        if is_huge or max(live.values()) > WORTH_TRACING * budget_bytes(config):
            kept = CPU_RETENTION if is_cpu else FRAGMENTATION
            reserved = {phase: int(kept * size) for phase, size in live.items()}
            peaks = Peaks(live, reserved)
            return _record(config, _with_copy(config, peaks), extrapolated=True), None
    trace = trace_training(config)
    if is_cpu:
        peaks = _with_copy(
            config, replay_on_heap(trace.events, keeps=hardware.host_allocator == "keep")
        )
    else:
        workspace = workspace_bytes()
        peaks = combined(replay(trace.events, workspace), replay(resumed(trace), workspace))
    return _record(config, peaks, extrapolated=False), trace


def _with_copy(config: Config, peaks: Peaks) -> Peaks:
    """Con la copia de la que se escriben los checkpoints, que en CPU sale de la misma memoria.

    El entrenador la reserva al empezar (`CheckpointWriter.reserve`) y no la suelta.
    """
    if config.hardware.device == "cuda":
        return peaks
    copy = checkpoint_bytes(config.model, config.train.optimizer)
    return Peaks(
        {phase: live + copy for phase, live in peaks.live.items()},
        {phase: size + copy for phase, size in peaks.reserved.items()},
    )


def judge_fit(memory: MemoryEstimate) -> Fit:
    """Si cabe, y con qué margen."""
    left = memory.budget_bytes - memory.peak_bytes
    if left < 0:
        return "no cabe"
    return "justo" if left < memory.margin_bytes else "cabe"


def _record(config: Config, peaks: Peaks, extrapolated: bool) -> MemoryEstimate:
    return MemoryEstimate(
        phases=tuple(
            PhaseMemory(phase=phase, live_bytes=live, reserved_bytes=peaks.reserved[phase])
            for phase, live in peaks.live.items()
        ),
        live_bytes=peaks.peak_live,
        peak_bytes=peaks.peak_reserved,
        context_bytes=CUDA_CONTEXT if config.hardware.device == "cuda" else 0,
        budget_bytes=budget_bytes(config),
        margin_bytes=margin_bytes(config),
        extrapolated=extrapolated,
    )
