"""El informe del preflight: JSON para las máquinas, tabla en la terminal, Markdown y figura."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from enlace.config.schema import Config
from enlace.files import write_bytes, write_json, write_text
from enlace.preflight.estimate.record import Comparison
from enlace.preflight.measurement import Failure, Measurement, Outcome
from enlace.preflight.rows import outcome_rows
from enlace.preflight.verdict import Verdict
from enlace.reports import markdown

PICTURE = "report.svg"


def write_preflight_report(
    config: Config,
    outcome: Outcome,
    verdict: Verdict,
    folder: Path,
    compared: Comparison | None = None,
) -> None:
    """Escribe `report.json`, `report.md` y `report.svg` en `folder`, pase o no pase.

    Los tres o ninguno: con el disco lleno no queda un informe a medias. `compared` es lo que se
    había estimado y cuánto se equivocó; `None` si no se sabe.
    """
    # Aquí y no arriba: matplotlib tarda, y la puerta del entrenamiento no dibuja.
    from enlace.preflight.picture import picture_svg

    picture = picture_svg(config, outcome)
    try:
        write_bytes(folder / PICTURE, picture)
        write_text(folder / "report.md", report_markdown(config, outcome, verdict, compared))
        write_json(folder / "report.json", report_json(outcome, verdict, compared))
    except OSError:
        for name in (PICTURE, "report.md", "report.json"):
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        raise


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
    parts = [f"# {report_title(config, outcome)}\n"]
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
        table = Table(title=report_title(config, outcome), min_width=60)
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


def report_title(config: Config, outcome: Outcome) -> str:
    """De qué modelo, con qué perfil y, si se llegó a medir, en qué dispositivo."""
    title = f"Preflight de {config.model.name} con el perfil {config.hardware.name}"
    return f"{title}: {outcome.device}" if isinstance(outcome, Measurement) else title


def headline(verdict: Verdict) -> str:
    """El veredicto en una línea, con si cabe delante."""
    fit = {"no medido": "Memoria no medida"}.get(verdict.fit, verdict.fit.capitalize())
    if verdict.passed:
        return f"{fit}. Preflight superado: el entrenamiento puede empezar."
    return f"{fit}. Preflight no superado: el entrenamiento no debe empezar así."
