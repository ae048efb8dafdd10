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
from enlace.preflight.disk import most_steps
from enlace.preflight.estimate.advice import Models, Search, micro_batches
from enlace.preflight.estimate.capacity import (
    budget_bytes,
    estimate_memory,
    judge_fit,
    margin_bytes,
)
from enlace.preflight.estimate.record import (
    DiskEstimate,
    EnergyEstimate,
    Estimate,
    Fit,
    MemoryEstimate,
    TimeEstimate,
)
from enlace.preflight.estimate.recorder import Trace
from enlace.preflight.estimate.remedy import change_text, smallest_change
from enlace.preflight.estimate.roofline import FASTEST, SLOWEST, Rates, StepTime, step_time
from enlace.preflight.estimate.trace import TRACED_MICRO_BATCHES
from enlace.train.retention import kept_checkpoints, save_count

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
        mask = config.data.document_mask
        decide(config.hardware, _description(card), 1, config.model, mask)
    rates, models = _rates(config, card), Models(config) if advise else None
    memory, trace = estimate_memory(config, models)
    time = _time(config, rates, trace, models) if rates is not None else None
    disk = _disk(config, free_disk_bytes)
    fit = judge_fit(memory)
    change = _smallest_change(config, models) if models is not None and fit != "cabe" else None
    fix = None if change is None else change_text(config, change)
    reasons = _reasons(config, fit, memory, disk, fix)
    best = None
    if models is not None and rates is not None and micro_batches(config):
        limit = budget_bytes(config) - margin_bytes(config)
        best = Search(config, models, rates, limit, fits_now=fit == "cabe").best()
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
        best=best,
        fix=fix,
    )


def _description(card: Card) -> DeviceDescription:
    return DeviceDescription("cuda", card.name, card.capability, card.memory_bytes)


def _rates(config: Config, card: Card | None) -> Rates | None:
    hardware = config.hardware
    if card is None or hardware.device != "cuda":
        return None
    peaks = (card.peak_flops(hardware.dtype), card.peak_flops("fp32"))
    return Rates(*peaks, card.bandwidth, hardware.compile)


def _time(config: Config, rates: Rates, trace: Trace | None, models: Models | None) -> TimeEstimate:
    recipe, hardware = config.train, config.hardware
    count = min(TRACED_MICRO_BATCHES, config.accumulation)
    if trace is None:
        assert models is not None
        corner = models.of(config)
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


def _smallest_change(config: Config, models: Models) -> Config | None:
    return smallest_change(
        config, lambda other: judge_fit(estimate_memory(other, models)[0]) == "cabe"
    )


def _reasons(
    config: Config, fit: Fit, memory: MemoryEstimate, disk: DiskEstimate, fix: str | None
) -> tuple[str, ...]:
    reasons = []
    if fit == "no cabe":
        remedy = fix or "elige un modelo más pequeño o un model.seq_len más corto"
        reasons.append(
            f"no cabe: se estiman {size(memory.peak_bytes)} y el perfil {config.hardware.name!r} "
            f"deja {size(memory.budget_bytes)}; {remedy}"
        )
    if disk.checkpoints_bytes + disk.shards_bytes > disk.free_bytes:
        reasons.append(_disk_reason(config, disk))
    return tuple(reasons)


def _disk_reason(config: Config, disk: DiskEstimate) -> str:
    recipe = config.train
    needed = disk.checkpoints_bytes + disk.shards_bytes
    steps = most_steps(config, disk.free_bytes, _disk_bytes)
    remedy = f" o baja train.steps de {recipe.steps} a {steps}" if steps else ""
    return (
        f"no hay disco: los checkpoints ocuparán {size(disk.checkpoints_bytes)} y los shards de "
        f"{integer(recipe.steps * recipe.tokens_per_step)} tokens, {size(disk.shards_bytes)}, y "
        f"quedan {size(disk.free_bytes)}; libera {size(needed - disk.free_bytes)}{remedy}"
    )


def _disk_bytes(config: Config) -> int:
    disk = _disk(config, 0)
    return disk.checkpoints_bytes + disk.shards_bytes
