"""La estimación entera: de una configuración y una tarjeta que no está, a un `Estimate`."""

import math

from enlace.backends import DeviceDescription, decide
from enlace.cards import Card
from enlace.config.schema import Config
from enlace.figures import integer, size
from enlace.model.cost import (
    checkpoint_bytes,
    flops_per_token,
    newton_schulz_flops,
    parameter_count,
)
from enlace.preflight.estimate.advice import FRAGMENTATION, Search, is_straight, micro_batches
from enlace.preflight.estimate.affine import extrapolate
from enlace.preflight.estimate.memory import (
    Peaks,
    combined,
    replay,
    replay_on_heap,
    resumed,
    workspace_bytes,
)
from enlace.preflight.estimate.record import (
    Choice,
    DiskEstimate,
    EnergyEstimate,
    Estimate,
    Fit,
    MemoryEstimate,
    PhaseMemory,
    TimeEstimate,
)
from enlace.preflight.estimate.recorder import Trace
from enlace.preflight.estimate.roofline import FASTEST, SLOWEST, Rates, StepTime, step_time
from enlace.preflight.estimate.trace import TRACED_MICRO_BATCHES, trace_training
from enlace.train.retention import kept_checkpoints, save_count

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
_DISK_BYTES_PER_SECOND = 300e6
"""Escritura de un disco doméstico con `fsync`, por debajo de la de cualquier SSD."""
_WIDE_VOCABULARY = 1 << 8


def estimate(
    config: Config, card: Card | None, free_disk_bytes: int, *, advise: bool = True
) -> Estimate:
    """Estima memoria, tiempo, energía y disco, y qué ajustes convienen. No necesita la tarjeta.

    Args:
        config: la configuración.
        card: la tarjeta para la que es; None si es para CPU o no está en la tabla, y entonces no
            hay tiempo, ni energía, ni consejo.
        free_disk_bytes: sitio libre en el disco de los checkpoints y los shards.
        advise: si además se busca qué ajustes convienen, que es lo que más tarda.

    Raises:
        HardwareError: la tarjeta no admite la precisión o la atención del perfil, con el remedio.
    """
    if config.hardware.device == "cuda" and card is not None:
        decide(config.hardware, _description(card), threads=1)
    rates = _rates(config, card)
    limit = _budget(config) - _margin(config)
    wanted = advise and rates is not None and bool(micro_batches(config))
    options = Search(config, rates, limit) if wanted and rates is not None else None
    memory, trace = _memory(config, options)
    time = None
    if rates is not None:
        time = _time(config, rates, trace, options)
    disk = _disk(config, free_disk_bytes)
    fit = _fit(memory)
    change = options.single_change() if options and fit == "no cabe" else None
    reasons = _reasons(config, fit, memory, disk, change)
    parameters = parameter_count(config.model)
    tokens = config.train.steps * config.train.tokens_per_step
    return Estimate(
        run_name=config.run_name,
        model=config.model.name,
        profile=config.hardware.name,
        device=card.name if card else config.hardware.device,
        dtype=config.hardware.dtype,
        sdpa_backend=config.hardware.sdpa_backend,
        compile=config.hardware.compile,
        micro_batch=config.hardware.micro_batch,
        accumulation=config.accumulation,
        activation_checkpointing=config.hardware.activation_checkpointing,
        parameters=parameters,
        flops_per_token=flops_per_token(config.model),
        newton_schulz_flops=newton_schulz_flops(config.model, config.train.muon_steps)
        if config.train.optimizer == "muon"
        else 0,
        tokens=tokens,
        tokens_per_parameter=tokens / parameters,
        fit=fit,
        reasons=reasons,
        memory=memory,
        time=time,
        energy=_energy(config, card, time),
        disk=disk,
        best=options.best() if options else None,
        fix=_change_text(config, change) if change else None,
    )


def _description(card: Card) -> DeviceDescription:
    return DeviceDescription("cuda", card.name, card.capability, card.memory_bytes)


def _rates(config: Config, card: Card | None) -> Rates | None:
    hardware = config.hardware
    if card is None or hardware.device != "cuda":
        return None
    peaks = (card.peak_flops(hardware.dtype), card.peak_flops("fp32"))
    return Rates(*peaks, card.bandwidth, hardware.compile)


def _budget(config: Config) -> int:
    context = CUDA_CONTEXT if config.hardware.device == "cuda" else 0
    return int(config.hardware.memory_gib * GIB) - context


def _margin(config: Config) -> int:
    return int(config.hardware.memory_margin * config.hardware.memory_gib * GIB)


def _memory(config: Config, options: Search | None) -> tuple[MemoryEstimate, Trace | None]:
    """La memoria, de la traza del modelo entero o, si no hay esperanza o es enorme, extrapolada."""
    hardware, model = config.hardware, config.model
    chunks = hardware.micro_batch * model.seq_len / hardware.loss_chunk_rows
    if options is not None and is_straight(config):
        mode = options.model(hardware.activation_checkpointing)
        live = mode.live(model.n_layer, hardware.micro_batch)
        if chunks > MAX_TRACED_CHUNKS or max(live.values()) > WORTH_TRACING * _budget(config):
            reserved = {phase: int(FRAGMENTATION * size) for phase, size in live.items()}
            return _memory_record(config, Peaks(live, reserved), extrapolated=True), None
    if hardware.device != "cuda" and chunks > MAX_TRACED_CHUNKS and is_straight(config):
        live = extrapolate(config).live(model.n_layer, hardware.micro_batch)
        retained = {phase: int(CPU_RETENTION * size) for phase, size in live.items()}
        return _memory_record(config, Peaks(live, retained), extrapolated=True), None
    trace = trace_training(config)
    if hardware.device == "cuda":
        workspace = workspace_bytes()
        peaks = combined(replay(trace.events, workspace), replay(resumed(trace), workspace))
    else:
        peaks = replay_on_heap(trace.events)
    return _memory_record(config, peaks, extrapolated=False), trace


def _memory_record(config: Config, peaks: Peaks, extrapolated: bool) -> MemoryEstimate:
    return MemoryEstimate(
        phases=tuple(
            PhaseMemory(phase=phase, live_bytes=live, reserved_bytes=peaks.reserved[phase])
            for phase, live in peaks.live.items()
        ),
        live_bytes=peaks.peak_live,
        peak_bytes=peaks.peak_reserved,
        context_bytes=CUDA_CONTEXT if config.hardware.device == "cuda" else 0,
        budget_bytes=_budget(config),
        margin_bytes=_margin(config),
        extrapolated=extrapolated,
    )


def _fit(memory: MemoryEstimate) -> Fit:
    if memory.peak_bytes > memory.budget_bytes:
        return "no cabe"
    left = memory.budget_bytes - memory.peak_bytes
    return "justo" if left < memory.margin_bytes else "cabe"


def _time(
    config: Config, rates: Rates, trace: Trace | None, options: Search | None
) -> TimeEstimate:
    recipe, hardware = config.train, config.hardware
    count = min(TRACED_MICRO_BATCHES, config.accumulation)
    if trace is None:
        assert options is not None
        corner = options.model(hardware.activation_checkpointing)
        step = corner.step(config.model.n_layer, hardware.micro_batch, rates, config.accumulation)
        parts = step_time(corner.corners[-1].trace, rates, count)
        scale = step / parts.step(config.accumulation)
        optimizer = corner.optimizer(config.model.n_layer, hardware.micro_batch, rates)
        parts = StepTime(parts.micro_batch, optimizer, parts.evaluation * scale, parts.shares)
    else:
        parts = step_time(trace, rates, count)
        step = parts.step(config.accumulation)
    rows_per_evaluation = recipe.eval_tokens / (hardware.micro_batch * config.model.seq_len)
    evaluations = math.ceil(recipe.steps / recipe.eval_every)
    checkpoint = checkpoint_bytes(config.model, recipe.optimizer)
    saving = save_count(recipe) * checkpoint / _DISK_BYTES_PER_SECOND
    computing = recipe.steps * step + evaluations * rows_per_evaluation * parts.evaluation
    speed = recipe.tokens_per_step / step
    low, high = SLOWEST, FASTEST
    return TimeEstimate(
        tokens_per_second=speed,
        tokens_per_second_low=low * speed,
        tokens_per_second_high=high * speed,
        total_seconds=computing + saving,
        total_seconds_low=computing / high + saving,
        total_seconds_high=computing / low + saving,
        peak_flops=rates.flops,
        model_flops_utilization=speed * flops_per_token(config.model) / rates.flops,
        gemm_share=parts.shares.get("gemm", 0.0) + parts.shares.get("gemm_fp32", 0.0),
        attention_share=parts.shares.get("attention", 0.0),
        pointwise_share=parts.shares.get("pointwise", 0.0),
        optimizer_share=parts.optimizer / step,
    )


def _energy(config: Config, card: Card | None, time: TimeEstimate | None) -> EnergyEstimate | None:
    if card is None or time is None:
        return None
    kwh = card.watts * time.total_seconds / 3.6e6
    price = config.hardware.preflight.kwh_price
    return EnergyEstimate(watts=card.watts, kwh=kwh, cost=kwh * price if price else None)


def _disk(config: Config, free_bytes: int) -> DiskEstimate:
    """Los checkpoints que conviven, el modelo y el estado exportados, y los shards de todo."""
    checkpoint = checkpoint_bytes(config.model, config.train.optimizer)
    exported = checkpoint + 4 * parameter_count(config.model)
    tokens = config.train.steps * config.train.tokens_per_step
    id_bytes = 2 if config.model.vocab_size > _WIDE_VOCABULARY else 1
    return DiskEstimate(
        checkpoint_bytes=checkpoint,
        checkpoints_bytes=kept_checkpoints(config) * checkpoint + exported,
        shards_bytes=tokens * id_bytes,
        free_bytes=free_bytes,
    )


def _reasons(
    config: Config, fit: Fit, memory: MemoryEstimate, disk: DiskEstimate, change: Choice | None
) -> tuple[str, ...]:
    reasons = []
    if fit == "no cabe":
        remedy = (
            _change_text(config, change)
            if change
            else "elige un modelo más pequeño o un model.seq_len más corto"
        )
        reasons.append(
            f"no cabe: se estiman {size(memory.peak_bytes)} y el perfil {config.hardware.name!r} "
            f"deja {size(memory.budget_bytes)}; {remedy}"
        )
    if disk.checkpoints_bytes + disk.shards_bytes > disk.free_bytes:
        reasons.append(_disk_reason(config, disk))
    return tuple(reasons)


def _disk_reason(config: Config, disk: DiskEstimate) -> str:
    recipe = config.train
    left = disk.free_bytes - disk.checkpoints_bytes
    steps = left * recipe.steps // disk.shards_bytes
    remedy = (
        f"baja train.steps de {recipe.steps} a {steps}"
        if steps > 0
        else f"conserva menos checkpoints (train.keep_last={recipe.keep_last}, "
        f"train.keep_every={recipe.keep_every})"
    )
    return (
        f"no hay disco: los checkpoints ocuparán {size(disk.checkpoints_bytes)} y los shards de "
        f"{integer(recipe.steps * recipe.tokens_per_step)} tokens, {size(disk.shards_bytes)}, y "
        f"quedan {size(disk.free_bytes)}; libera sitio o {remedy}"
    )


def _change_text(config: Config, change: Choice) -> str:
    hardware = config.hardware
    if change.micro_batch != hardware.micro_batch:
        return f"baja hardware.micro_batch de {hardware.micro_batch} a {change.micro_batch}"
    return (
        f"pon hardware.activation_checkpointing: {change.activation_checkpointing} "
        f"(ahora, {hardware.activation_checkpointing})"
    )
