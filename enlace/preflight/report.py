"""El informe del preflight: JSON para las máquinas, tabla en la terminal, Markdown y figura."""

from math import inf, log
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from enlace.config.schema import Config
from enlace.figures import duration, integer, number, percent, short, size
from enlace.files import write_bytes, write_json, write_text
from enlace.preflight.estimate.record import Comparison
from enlace.preflight.health import Health
from enlace.preflight.measurement import Failure, Measurement, Outcome
from enlace.preflight.verdict import Verdict, memory_budget
from enlace.preflight.wording import CHECKPOINTING
from enlace.reports import markdown

_MEGA = 1_000_000
_GIGA = 1_000_000_000
CHINCHILLA_TOKENS_PER_PARAMETER = 20
"""Hoffmann et al. 2022 (arXiv 2203.15556): lo que rinde más por FLOP, no un mínimo."""
PICTURE = "report.svg"

Rows = list[tuple[str, str]]


def write_preflight_report(
    config: Config,
    outcome: Outcome,
    verdict: Verdict,
    folder: Path,
    compared: Comparison | None = None,
) -> None:
    """Escribe `report.json`, `report.md` y `report.svg` en `folder`, pase o no pase.

    `compared` es lo que se había estimado y cuánto se equivocó; `None` si no se sabe.
    """
    # Aquí y no arriba: matplotlib tarda, y la puerta del entrenamiento no dibuja.
    from enlace.preflight.picture import picture_svg

    write_json(folder / "report.json", report_json(outcome, verdict, compared))
    write_text(folder / "report.md", report_markdown(config, outcome, verdict, compared))
    write_bytes(folder / PICTURE, picture_svg(config, outcome))


def report_json(
    outcome: Outcome, verdict: Verdict, compared: Comparison | None = None
) -> dict[str, Any]:
    """Lo medido y lo decidido; lo que no se midió es `null`."""
    failed = isinstance(outcome, Failure)
    return {
        "passed": verdict.passed,
        "fit": verdict.fit,
        "reasons": list(verdict.reasons),
        "warnings": list(verdict.warnings),
        "measurement": None if failed else outcome.model_dump(mode="json"),
        "failure": outcome.model_dump(mode="json") if failed else None,
        "estimate": None if compared is None else compared.model_dump(mode="json"),
    }


def report_markdown(
    config: Config, outcome: Outcome, verdict: Verdict, compared: Comparison | None = None
) -> str:
    """El mismo contenido que la terminal, en Markdown, y la figura."""
    parts = [f"# Preflight de {config.model.name} en {config.hardware.name}\n"]
    parts.append(f"**{headline(verdict)}**\n")
    notes = [*verdict.reasons, *(f"aviso: {warning}" for warning in verdict.warnings)]
    if notes:
        parts.append("".join(f"- {note}\n" for note in notes))
    rows = outcome_rows(config, outcome, compared)
    if rows:
        parts.append(markdown.table(["Qué", "Medido"], rows))
        parts.append(f"![Memoria por fase y ventana de escalas]({PICTURE})\n")
    return "\n".join(parts)


def show_preflight(
    config: Config,
    outcome: Outcome,
    verdict: Verdict,
    console: Console,
    compared: Comparison | None = None,
) -> None:
    """Escribe la tabla, los motivos y el veredicto en la consola; lo último, lo que importa."""
    rows = outcome_rows(config, outcome, compared)
    if rows:
        where = outcome.device if isinstance(outcome, Measurement) else config.hardware.name
        table = Table(title=f"Preflight de {config.model.name} en {where}", min_width=60)
        table.add_column("Qué")
        table.add_column("Medido", justify="right")
        for name, value in rows:
            table.add_row(name, value)
        console.print(table)
    for reason in verdict.reasons:
        console.print(f"  × {reason}", markup=False, highlight=False, soft_wrap=True)
    for warning in verdict.warnings:
        console.print(f"  aviso: {warning}", markup=False, highlight=False, soft_wrap=True)
    style = "bold green" if verdict.passed else "bold red"
    console.print(headline(verdict), style=style, markup=False, highlight=False)


def headline(verdict: Verdict) -> str:
    """El veredicto en una línea, con si cabe delante."""
    fit = {"no medido": "Memoria no medida"}.get(verdict.fit, verdict.fit.capitalize())
    if verdict.passed:
        return f"{fit}. Preflight superado: el entrenamiento puede empezar."
    return f"{fit}. Preflight no superado: el entrenamiento no debe empezar así."


def outcome_rows(config: Config, outcome: Outcome, compared: Comparison | None = None) -> Rows:
    """Las cifras de una medida o, si no llegó al final, lo que se sepa de fp16."""
    if isinstance(outcome, Measurement):
        return measurement_rows(config, outcome) + comparison_rows(compared)
    return [] if outcome.health is None else health_rows(outcome.health)


def measurement_rows(config: Config, outcome: Measurement) -> Rows:
    """Las cifras que lee una persona, en el orden en que las pregunta."""
    time, disk = outcome.time, outcome.disk
    rows: Rows = [
        *_memory_rows(config, outcome),
        *_time_rows(config, outcome),
        *_card_rows(outcome),
        ("Micro-batch × acumulación", f"{outcome.micro_batch} × {outcome.accumulation}"),
        ("Checkpointing de activaciones", CHECKPOINTING[config.hardware.activation_checkpointing]),
        ("Parámetros", f"{number(outcome.parameters / _MEGA, 2)} M"),
        ("FLOP por token", f"{number(outcome.flops_per_token / _MEGA, 1)} M"),
        ("Cálculo útil", f"{number(_useful_flops(outcome) / _GIGA, 1)} GFLOP/s"),
        (
            "Tokens por parámetro",
            f"{number(outcome.tokens_per_parameter, 1)} "
            f"(Chinchilla: {CHINCHILLA_TOKENS_PER_PARAMETER})",
        ),
        (
            "Pérdida del primer paso",
            f"{number(outcome.first_loss, 3)} (al azar: {number(log(config.model.vocab_size), 3)})",
        ),
        ("Tasa de aprendizaje del ensayo", f"{short(config.train.lr)} (fija)"),
        ("Validación", duration(time.evaluation)),
        ("Guardar y cargar un checkpoint", f"{duration(time.save)} y {duration(time.load)}"),
        ("Un checkpoint", size(disk.checkpoint_bytes)),
        ("Disco: necesario y libre", f"{size(disk.needed_bytes)} y {size(disk.free_bytes)}"),
        ("Precisión y atención", f"{outcome.dtype}, {outcome.sdpa_backend}"),
    ]
    if outcome.health is not None:
        rows += health_rows(outcome.health)
    return rows


def comparison_rows(compared: Comparison | None) -> Rows:
    """Lo que se había estimado sin medir, y cuánto se apartó de ello lo medido."""
    if compared is None:
        return []
    error = compared.error
    rows: Rows = []
    if error.peak_memory is not None:
        figure = size(compared.peak_bytes)
        rows.append(("Memoria estimada", f"{figure}; se midió {deviation(error.peak_memory)}"))
    if error.tokens_per_second is not None and compared.tokens_per_second is not None:
        figure = f"{integer(round(compared.tokens_per_second))} tokens/s"
        rows.append(
            ("Velocidad estimada", f"{figure}; se midió {deviation(error.tokens_per_second)}")
        )
    return rows


def deviation(fraction: float) -> str:
    """`0.12` → «un 12,0 % más»; `-0.5` → «un 50,0 % menos»."""
    return f"un {percent(abs(fraction))} {'menos' if fraction < 0 else 'más'}"


def _useful_flops(outcome: Measurement) -> float:
    return outcome.tokens_per_second * outcome.flops_per_token


def _memory_rows(config: Config, outcome: Measurement) -> Rows:
    memory = outcome.memory
    budget = memory_budget(config, memory)
    if memory.peak_allocated_bytes is None:
        return [("RAM: necesaria y disponible", f"{size(memory.needed_bytes)} y {size(budget)}")]
    return [
        ("VRAM: necesaria y disponible", f"{size(memory.needed_bytes)} y {size(budget)}"),
        (
            "VRAM: pico reservado y con los pasos en marcha",
            f"{size(memory.peak_bytes)} y {size(memory.steady_bytes)}",
        ),
        (
            "VRAM: pico en uso y fragmentación",
            f"{size(memory.peak_allocated_bytes)} y {percent(memory.fragmentation)}",
        ),
        ("VRAM fuera de torch", size(memory.non_torch_bytes)),
        ("Reintentos del asignador", integer(memory.allocation_retries)),
    ]


def _time_rows(config: Config, outcome: Measurement) -> Rows:
    time = outcome.time
    hours = duration(time.total_median)
    if duration(time.total_p90) != hours:
        hours = f"{hours} (hasta {duration(time.total_p90)} con los pasos lentos)"
    first = "Primer paso, con la compilación" if config.hardware.compile else "Primer paso"
    return [
        ("Duración del entrenamiento", hours),
        (
            "Tokens por segundo: mediana y p90",
            f"{integer(round(outcome.tokens_per_second))} y "
            f"{integer(round(outcome.slow_tokens_per_second))}",
        ),
        ("Paso: mediana y p90", f"{duration(time.step_median)} y {duration(time.step_p90)}"),
        (first, duration(time.warmup)),
        ("Leer los datos de un paso", f"{duration(time.loading)} ({time.loading_from})"),
        ("Pasos medidos", integer(len(time.steps))),
    ]


def _card_rows(outcome: Measurement) -> Rows:
    rows: Rows = []
    if outcome.energy is not None:
        energy = outcome.energy
        cost = "" if energy.cost is None else f" ({number(energy.cost, 2)} según kwh_price)"
        rows += [
            ("Potencia media", f"{number(energy.watts, 0)} W ({energy.source})"),
            ("Energía del entrenamiento", f"{number(energy.total_kwh, 2)} kWh{cost}"),
        ]
    if outcome.card is not None:
        card = outcome.card
        clock = f"{integer(card.sm_clock_mhz)} de {integer(card.max_sm_clock_mhz)} MHz"
        brakes = "no medido" if card.throttling is None else ", ".join(card.throttling) or "ninguno"
        rows += [
            ("Reloj y temperatura", f"{clock}, {integer(card.temperature_c)} °C"),
            ("Frenos del reloj", brakes),
        ]
    return rows


def health_rows(health: Health) -> Rows:
    """La salud de fp16: ventana de escalas, activaciones, comparación con fp32 y saltos."""
    window, peak, scaling = health.window, health.tightest, health.scaling
    if window.top is None or window.floor is None:
        shown = "ninguna escala sirve"
    else:
        more = " o más" if window.ceiling is None else ""
        shown = f"2^{window.floor} a 2^{window.top}{more} ({window.bits} bits)"
    bits = -inf if peak.bits is None else peak.bits
    headroom = "desborda" if peak.bits is None else f"a {number(bits, 1)} bits de 65504"
    seen = f"{integer(scaling.skips)} de {integer(scaling.steps)}"
    if scaling.bound is not None:
        seen = f"{seen} (al 95\u00a0%, menos del {percent(scaling.bound)})"
    rows: Rows = [
        ("fp16: escalas que sirven", shown),
        ("fp16: mayor activación", f"{peak.where}, {headroom}"),
    ]
    if health.gap is not None:
        rows.append(
            (
                "fp16 frente a fp32",
                f"pérdida ±{percent(health.gap.loss_difference, 3)}, "
                f"coseno {number(health.gap.gradient_cosine, 5)}",
            )
        )
    return [
        *rows,
        ("fp16: saltos de calibración", integer(scaling.calibration_skips)),
        ("fp16: pasos saltados", seen),
        ("fp16: saltos previstos", percent(scaling.skip_rate if scaling.steps else None, 2)),
        ("fp16: escala final", number(scaling.scales[-1], 0)),
    ]
