"""El informe del preflight: JSON para las máquinas, una tabla en la terminal y Markdown."""

from math import log
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from enlace.config.schema import Config
from enlace.files import write_json, write_text
from enlace.preflight.measurement import Failure, LossScaling, Measurement, Outcome
from enlace.preflight.verdict import Verdict, skip_bound
from enlace.reports import markdown
from enlace.reports.text import duration, integer, number, percent, size

_MEGA = 1_000_000
_GIGA = 1_000_000_000
CHINCHILLA_TOKENS_PER_PARAMETER = 20
"""Hoffmann et al. 2022 (arXiv 2203.15556): lo que rinde más por FLOP, no un mínimo."""

Rows = list[tuple[str, str]]


def write_preflight_report(
    config: Config, outcome: Outcome, verdict: Verdict, folder: Path
) -> None:
    """Escribe `report.json` y `report.md` en `folder`, pase o no pase el veredicto."""
    write_json(folder / "report.json", report_json(outcome, verdict))
    write_text(folder / "report.md", report_markdown(config, outcome, verdict))


def report_json(outcome: Outcome, verdict: Verdict) -> dict[str, Any]:
    """Lo medido y lo decidido; lo que no se midió es `null`."""
    failed = isinstance(outcome, Failure)
    return {
        "passed": verdict.passed,
        "fit": verdict.fit,
        "reasons": list(verdict.reasons),
        "warnings": list(verdict.warnings),
        "measurement": None if failed else outcome.model_dump(mode="json"),
        "failure": outcome.model_dump(mode="json") if failed else None,
    }


def report_markdown(config: Config, outcome: Outcome, verdict: Verdict) -> str:
    """El mismo contenido que la terminal, en Markdown."""
    parts = [f"# Preflight de {config.model.name} en {config.hardware.name}\n"]
    parts.append(f"**{headline(verdict)}**\n")
    notes = [*verdict.reasons, *(f"aviso: {warning}" for warning in verdict.warnings)]
    if notes:
        parts.append("".join(f"- {note}\n" for note in notes))
    if isinstance(outcome, Measurement):
        parts.append(markdown.table(["Qué", "Medido"], measurement_rows(config, outcome)))
    return "\n".join(parts)


def show_preflight(config: Config, outcome: Outcome, verdict: Verdict, console: Console) -> None:
    """Escribe la tabla, los motivos y el veredicto en la consola."""
    if isinstance(outcome, Measurement):
        table = Table(title=f"Preflight de {config.model.name} en {outcome.device}", min_width=60)
        table.add_column("Qué")
        table.add_column("Medido", justify="right")
        for name, value in measurement_rows(config, outcome):
            table.add_row(name, value)
        console.print(table)
    for reason in verdict.reasons:
        console.print(f"  × {reason}", markup=False, highlight=False, soft_wrap=True)
    for warning in verdict.warnings:
        console.print(f"  aviso: {warning}", markup=False, highlight=False, soft_wrap=True)
    style = "bold green" if verdict.passed else "bold red"
    console.print(headline(verdict), style=style, markup=False, highlight=False)


def headline(verdict: Verdict) -> str:
    """El veredicto en una línea."""
    if verdict.passed:
        return "Preflight superado: el entrenamiento puede empezar."
    return "Preflight no superado: el entrenamiento no debe empezar así."


def measurement_rows(config: Config, outcome: Measurement) -> Rows:
    """Las cifras que lee una persona, en el orden en que las pregunta."""
    time, disk = outcome.time, outcome.disk
    hours = duration(time.total_median)
    if duration(time.total_p90) != hours:
        hours = f"{hours} (hasta {duration(time.total_p90)} con los pasos lentos)"
    rows: Rows = [
        ("Duración del entrenamiento", hours),
        ("Tokens por segundo", integer(round(outcome.tokens_per_second))),
        ("Paso: mediana y p90", f"{duration(time.step_median)} y {duration(time.step_p90)}"),
        ("Pasos medidos", integer(len(time.steps))),
        *_memory_rows(outcome),
        ("Micro-batch × acumulación", f"{outcome.micro_batch} × {outcome.accumulation}"),
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
        ("Validación", duration(time.evaluation)),
        ("Guardar y cargar un checkpoint", f"{duration(time.save)} y {duration(time.load)}"),
        ("Un checkpoint", size(disk.checkpoint_bytes)),
        ("Disco: necesario y libre", f"{size(disk.needed_bytes)} y {size(disk.free_bytes)}"),
        ("Precisión y atención", f"{outcome.dtype}, {outcome.sdpa_backend}"),
    ]
    if outcome.loss_scaling is not None:
        rows += _scaling_rows(outcome.loss_scaling)
    return rows


def _useful_flops(outcome: Measurement) -> float:
    return outcome.tokens_per_second * outcome.flops_per_token


def _memory_rows(outcome: Measurement) -> Rows:
    memory = outcome.memory
    is_gpu = memory.peak_allocated_bytes is not None
    name = "VRAM: pico reservado y libre" if is_gpu else "RAM: pico añadido y libre"
    return [(name, f"{size(memory.peak_bytes)} y {size(memory.free_bytes)}")]


def _scaling_rows(scaling: LossScaling) -> Rows:
    bound = skip_bound(scaling)
    seen = f"{integer(scaling.skips)} de {integer(scaling.steps)}"
    if bound is not None:
        seen = f"{seen} (al 95\u00a0%, menos del {percent(bound)})"
    return [
        ("fp16: pasos de calibración", integer(scaling.calibration_skips)),
        ("fp16: pasos saltados", seen),
        ("fp16: escala final", number(scaling.final_scale, 0)),
    ]
