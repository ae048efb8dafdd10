"""La puerta: medir, decidir, escribir el informe y, solo si pasa, el veredicto y el sello."""

import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console

from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.preflight import stamp
from enlace.preflight.estimate.record import Comparison
from enlace.preflight.isolate import describe_isolated, measure_isolated
from enlace.preflight.measurement import Measurement, Outcome
from enlace.preflight.report import show_preflight, write_preflight_report
from enlace.preflight.verdict import Verdict, judge, require_verdict, verdict_key, write_verdict
from enlace.process import device_lock

VERDICT_FILE = "verdict.json"
_CPU = "cpu"
Measure = Callable[[Config, Path], Outcome]
Describe = Callable[[str], str]
Lock = Callable[[str], AbstractContextManager[None]]
Compare = Callable[[Config, Measurement], Comparison | None]


def run_preflight(
    config: Config,
    values: Mapping[str, Any],
    root: Path,
    reports: Path,
    console: Console,
    measure: Measure = measure_isolated,
    compare: Compare = lambda _config, _measurement: None,
) -> Verdict:
    """La etapa `preflight`: mide siempre, y deja veredicto y sello solo si pasa.

    Args:
        config: la configuración que se mide.
        values: las hojas que la etapa declara; su SHA-256 es la clave del veredicto.
        root: raíz del proyecto, de la que cuelgan los sellos y los checkpoints.
        reports: carpeta del informe y del veredicto.
        console: dónde se escribe la tabla.
        measure: quién mide; recibe la configuración y una carpeta en el disco de los checkpoints.
        compare: dice cuánto se equivocó la estimación de lo mismo, si se puede saber.

    Raises:
        PreflightError: si no pasa, con los motivos; el informe queda escrito.
        OSError: `reports` o la carpeta de los sellos no se dejan escribir; se dice antes de medir.
    """
    key = verdict_key(values)
    for folder in (reports, root / stamp.STAMP_FOLDER):
        _check_writable(folder)
    # Antes de medir: un corte a mitad no debe dejar en pie un veredicto anterior.
    (reports / VERDICT_FILE).unlink(missing_ok=True)
    outcome = measure(config, root / stamp.STAMP_FOLDER)
    verdict = judge(config, outcome)
    compared = compare(config, outcome) if isinstance(outcome, Measurement) else None
    write_preflight_report(config, outcome, verdict, reports, compared)
    _conclude(config, outcome, verdict, root, key, console, compared)
    write_verdict(reports / VERDICT_FILE, key)
    return verdict


def require_preflight(
    config: Config,
    values: Mapping[str, Any],
    root: Path,
    verdict_file: Path,
    console: Console,
    measure: Measure = measure_isolated,
    describe: Describe = describe_isolated,
    lock: Lock = device_lock,
) -> None:
    """Antes de entrenar: el veredicto debe ser de estos valores y el sello, de esta máquina.

    Sin sello mide ahora en vez de rendirse, con la tarjeta cerrada para los demás; con sello no la
    toca. No escribe veredicto ni informe, que son de la etapa `preflight`.

    Args:
        config: la configuración que se va a entrenar.
        values: las hojas que la etapa `preflight` declara.
        root: raíz del proyecto.
        verdict_file: el veredicto.
        console: dónde se escribe la tabla, si hay que medir.
        measure: quién mide.
        describe: da el nombre de la tarjeta.
        lock: cierra el dispositivo para los demás procesos.

    Raises:
        PreflightError: el veredicto falta o es de otros valores, o hay que medir y no pasa.
        HardwareError: la máquina no tiene el dispositivo del perfil.
        LockError: otro proceso usa la tarjeta.
        OSError: hay que medir y la carpeta de los sellos no se deja escribir.
    """
    require_verdict(verdict_file, values)
    key, device = verdict_key(values), config.hardware.device
    name = _CPU if device == _CPU else describe(device)
    if stamp.has_stamp(root, stamp.machine_id(name), key):
        return
    console.print(
        "Esta máquina aún no ha medido esta configuración: empiezo por el preflight.",
        highlight=False,
    )
    _check_writable(root / stamp.STAMP_FOLDER)
    with lock(device):
        outcome = measure(config, root / stamp.STAMP_FOLDER)
        _conclude(config, outcome, judge(config, outcome), root, key, console)


def _check_writable(folder: Path) -> None:
    """Que se pueda escribir en `folder` se sabe en el acto; medir son minutos."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    except OSError as error:
        raise type(error)(error.errno, os.strerror(error.errno or 0), str(folder)) from None


def _conclude(
    config: Config,
    outcome: Outcome,
    verdict: Verdict,
    root: Path,
    key: str,
    console: Console,
    compared: Comparison | None = None,
) -> None:
    """Muestra el resultado; sella si pasa y, si no, retira los sellos y lanza el error."""
    show_preflight(config, outcome, verdict, console, compared)
    if verdict.passed and isinstance(outcome, Measurement):
        name = _CPU if config.hardware.device == _CPU else outcome.device
        stamp.write_stamp(root, stamp.machine_id(name), key, outcome.device)
        return
    stamp.remove_stamps(root, key)
    raise PreflightError("; además, ".join(verdict.reasons))
