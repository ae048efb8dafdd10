"""La puerta: medir, decidir, escribir el informe y, solo si pasa, el veredicto y el sello."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from enlace.backends import describe_device
from enlace.config.schema import Config
from enlace.errors import HardwareError, PreflightError
from enlace.preflight import stamp
from enlace.preflight.isolate import measure_isolated
from enlace.preflight.measurement import Measurement, Outcome
from enlace.preflight.report import show_preflight, write_preflight_report
from enlace.preflight.verdict import Verdict, judge, verdict_key, write_verdict

VERDICT_FILE = "verdict.json"
Measure = Callable[[Config, Path], Outcome]


def run_preflight(
    config: Config,
    values: Mapping[str, Any],
    root: Path,
    reports: Path,
    console: Console,
    measure: Measure = measure_isolated,
) -> Verdict:
    """La etapa `preflight`: mide siempre, y deja veredicto y sello solo si pasa.

    Args:
        config: la configuración que se mide.
        values: las hojas que la etapa declara; su SHA-256 es la clave del veredicto.
        root: raíz del proyecto, de la que cuelgan los sellos y los checkpoints.
        reports: carpeta del informe y del veredicto.
        console: dónde se escribe la tabla.
        measure: quién mide; recibe la configuración y una carpeta en el disco de los checkpoints.

    Raises:
        PreflightError: si no pasa, con los motivos; el informe queda escrito.
    """
    key = verdict_key(values)
    # Antes de medir: un corte a mitad no debe dejar en pie un veredicto anterior.
    (reports / VERDICT_FILE).unlink(missing_ok=True)
    outcome = measure(config, root / stamp.STAMP_FOLDER)
    verdict = judge(config, outcome)
    write_preflight_report(config, outcome, verdict, reports)
    _conclude(config, outcome, verdict, root, key, console)
    write_verdict(reports / VERDICT_FILE, key)
    return verdict


def require_stamp(
    config: Config,
    values: Mapping[str, Any],
    root: Path,
    console: Console,
    measure: Measure = measure_isolated,
) -> None:
    """Antes de entrenar: si esta máquina no tiene el sello, mide ahora en vez de rendirse.

    Los argumentos son los de `run_preflight`. No escribe veredicto ni informe, que son de la etapa
    `preflight`.

    Raises:
        PreflightError: si hay que medir y no pasa.
        HardwareError: si la máquina no tiene el dispositivo del perfil.
    """
    key = verdict_key(values)
    machine = stamp.machine_id(describe_device(config.hardware.device))
    if stamp.has_stamp(root, machine, key):
        return
    console.print(
        "Esta máquina aún no ha medido esta configuración: empiezo por el preflight.",
        highlight=False,
    )
    outcome = measure(config, root / stamp.STAMP_FOLDER)
    _conclude(config, outcome, judge(config, outcome), root, key, console)


def _conclude(
    config: Config, outcome: Outcome, verdict: Verdict, root: Path, key: str, console: Console
) -> None:
    """Muestra el resultado; sella si pasa y, si no, retira el sello anterior y lanza el error."""
    show_preflight(config, outcome, verdict, console)
    if verdict.passed and isinstance(outcome, Measurement):
        machine = stamp.machine_id(describe_device(config.hardware.device))
        stamp.write_stamp(root, machine, key, outcome.device)
        return
    with suppress(HardwareError):
        machine = stamp.machine_id(describe_device(config.hardware.device))
        stamp.remove_stamp(root, machine, key)
    raise PreflightError("; además, ".join(verdict.reasons))
