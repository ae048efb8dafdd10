"""La estimación en la terminal: una tabla que dice en su título que no es una medida."""

from rich.console import Console
from rich.table import Table

from enlace.figures import at_least, duration, energy, integer, magnitude, number, percent, size
from enlace.preflight.estimate.record import Choice, Estimate, TimeEstimate
from enlace.preflight.wording import CHECKPOINTING, tokens_per_parameter

PHASES = {
    "load": "al reanudar",
    "forward": "adelante",
    "backward": "atrás",
    "optimizer": "optimizador",
    "evaluation": "validación",
}
_STYLES = {"cabe": "bold green", "justo": "bold yellow", "no cabe": "bold red"}
Rows = list[tuple[str, str]]


def show_estimate(estimate: Estimate, console: Console) -> None:
    """Escribe la tabla y la conclusión; los motivos los da quien decide si seguir."""
    title = f"ESTIMACIÓN, no medida: {estimate.run_name} en {estimate.device}"
    table = Table(title=title, min_width=60)
    table.add_column("Qué")
    table.add_column("Estimado", justify="right")
    for name, value in estimate_rows(estimate):
        table.add_row(name, value)
    console.print(table)
    style = "bold red" if estimate.reasons else _STYLES[estimate.fit]
    console.print(headline(estimate), style=style, markup=False, highlight=False)


def headline(estimate: Estimate) -> str:
    """La conclusión en una línea."""
    if estimate.fit == "no cabe":
        return "Se estima que no cabe."
    if estimate.reasons:
        return "Cabe en la tarjeta, pero no puede empezar así."
    doubt = "con margen"
    if estimate.fit == "justo":
        doubt = "con menos margen del pedido"
        if estimate.fix:
            doubt = f"{doubt} (para tenerlo, {estimate.fix})"
    where = "en la tarjeta" if estimate.memory.context_bytes else "en esta máquina"
    return f"Se estima que cabe, {doubt}. Solo make preflight, {where}, lo mide."


def estimate_rows(estimate: Estimate) -> Rows:
    """Las filas (qué, valor)."""
    memory, disk = estimate.memory, estimate.disk
    live = {phase.phase: phase.live_bytes for phase in memory.phases}
    is_gpu = memory.context_bytes > 0
    reserved = "VRAM reservada" if is_gpu else "RAM añadida"
    rows: Rows = [
        (f"{reserved} y disponible", f"{size(memory.peak_bytes)} y {size(memory.budget_bytes)}"),
        ("Tensores vivos, por fase", ""),
        *((f"  {name}", size(live[phase])) for phase, name in PHASES.items() if phase in live),
    ]
    if is_gpu:
        rows.append(("Contexto de CUDA, aparte", size(memory.context_bytes)))
    mode = CHECKPOINTING[estimate.activation_checkpointing]
    rows.append(
        (
            "Micro-batch × acumulación",
            f"{estimate.micro_batch} × {estimate.accumulation}, {mode}",
        )
    )
    if estimate.time is not None:
        rows += _time_rows(estimate.time)
    if estimate.energy is not None:
        cost = estimate.energy.cost
        price = "" if cost is None else f" ({at_least(cost, 2)} según kwh_price)"
        rows.append(("Energía de la tarjeta", f"{energy(estimate.energy.kwh)}{price}"))
    rows += [
        ("Tokens por parámetro", tokens_per_parameter(estimate.tokens_per_parameter)),
        ("FLOP por token", magnitude(estimate.flops_per_token)),
        *_muon_rows(estimate),
        (
            "Disco: checkpoints, shards y libre",
            f"{size(disk.checkpoints_bytes)}, {size(disk.shards_bytes)} y {size(disk.free_bytes)}",
        ),
    ]
    if estimate.best is not None:
        rows.append(("Lo más rápido que cabe", _choice(estimate, estimate.best)))
    return rows


def _time_rows(time: TimeEstimate) -> Rows:
    low, high = round(time.tokens_per_second_low, -2), round(time.tokens_per_second_high, -2)
    shares = (time.gemm_share, time.attention_share, time.pointwise_share)
    return [
        ("Velocidad", f"{integer(int(low))}–{integer(int(high))} tokens/s"),
        ("Duración", f"{duration(time.total_seconds_low)} a {duration(time.total_seconds_high)}"),
        (
            "MFU (de qué pico)",
            f"{percent(time.model_flops_utilization)} de "
            f"{number(time.peak_flops / 1e12, 1)} TFLOPS",
        ),
        ("Productos, atención y lo demás", " · ".join(percent(share, 0) for share in shares)),
    ]


def _muon_rows(estimate: Estimate) -> Rows:
    if not estimate.newton_schulz_flops:
        return []
    rows = [("FLOP de Muon por paso", magnitude(estimate.newton_schulz_flops))]
    if estimate.time is not None:
        rows.append(("Parte del paso en el optimizador", percent(estimate.time.optimizer_share)))
    return rows


def _choice(estimate: Estimate, choice: Choice) -> str:
    rows, mode = choice.micro_batch, choice.activation_checkpointing
    if (rows, mode) == (estimate.micro_batch, estimate.activation_checkpointing):
        return "lo que ya está puesto"
    return f"micro-batch {rows}, {CHECKPOINTING[mode]}"
