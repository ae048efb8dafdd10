"""El resumen de una campaña, en una tabla que una persona lee."""

from collections import Counter

from enlace.figures import integer, number
from tests.chaos.campaign import Totals
from tests.chaos.executor import Death
from tests.chaos.marks import PHASE_NAMES
from tests.chaos.plan import WAY_NAMES


def describe_campaign(totals: Totals, seed: int, seconds: float) -> str:
    """La tabla de muertes por fase y señales, y las cuentas de lo perdido."""
    deaths, lost = totals.deaths, totals.lost
    mean = sum(lost) / len(lost) if lost else 0.0
    ambushed = sum(death.plan is not None and death.plan.ambush is not None for death in deaths)
    fresh = sum(death.plan is not None and death.plan.fresh for death in deaths)
    lines = [
        f"caos: semilla {seed}, {integer(len(deaths))} muertes en {number(seconds, 0)} s",
        "",
        *_table(deaths),
        "",
        f"por reloj: {len(deaths) - ambushed}; en emboscada: {ambushed}; "
        f"en procesos nuevos: {fresh}",
        f"pasos repetidos por muerte: máximo {max(lost, default=0)}, media {number(mean, 2)}",
        f"vidas: {totals.lives}; entrenamientos acabados: {totals.identical} de {totals.trainings}",
        f"idénticos al seguido: {'sí' if totals.identical == totals.trainings else 'NO'}",
    ]
    return "\n".join([*lines, *(f"FALLO: {text}" for text in totals.failures)])


def _table(deaths: list[Death]) -> list[str]:
    counts = Counter((death.phase, death.plan.name) for death in deaths if death.plan)
    rows = [["fase", *WAY_NAMES, "total"]]
    for phase, name in PHASE_NAMES.items():
        found = [counts[phase, way] for way in WAY_NAMES]
        rows.append([name, *(str(count) for count in found), str(sum(found))])
    columns = [sum(counts[phase, way] for phase in PHASE_NAMES) for way in WAY_NAMES]
    rows.append(["total", *(str(count) for count in columns), str(sum(columns))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *numbers in rows:
        cells = [name.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
