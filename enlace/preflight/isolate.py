"""Medir en un proceso aparte: pase lo que pase allí, aquí llega una medida o un `Failure`."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

import enlace
from enlace.config.schema import Config
from enlace.errors import USER_ERROR, HardwareError
from enlace.preflight.measurement import Failure, Outcome

if TYPE_CHECKING:
    # Solo para que DVC sepa que la etapa depende de él: aquí importarlo cargaría torch.
    from enlace.preflight import child  # noqa: F401

CHILD_COMMAND = (sys.executable, "-m", "enlace.preflight.child")
_DESCRIBE = "--describe"
_NO_PROBES = "--no-probes"
_PARENT = "--parent="
_LAST_WORDS = 200
_SCRATCH_PREFIX = "preflight-"
_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def measure_isolated(
    config: Config,
    scratch_root: Path,
    command: Sequence[str] = CHILD_COMMAND,
    *,
    shards: Path | None = None,
    probe: bool = True,
) -> Outcome:
    """Mide `config` en otro proceso y devuelve lo medido o por qué no se pudo.

    Args:
        config: la configuración; viaja como JSON por la entrada estándar.
        scratch_root: carpeta en el disco de los checkpoints; dentro se crea una temporal que se
            borra siempre.
        command: el programa que mide; recibe el fichero de resultado, la carpeta temporal y los
            shards.
        shards: de dónde leer para medir la lectura de datos.
        probe: si en fp16 se mide también la salud numérica.
    """
    scratch_root.mkdir(parents=True, exist_ok=True)
    _remove_orphans(scratch_root)
    prefix = f"{_SCRATCH_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=scratch_root) as folder:
        result = Path(folder) / "result.json"
        arguments = [str(result), folder, "" if shards is None else str(shards)]
        options = [f"{_PARENT}{os.getpid()}", *([] if probe else [_NO_PROBES])]
        finished = subprocess.run(
            [*command, *arguments, *options],
            input=config.model_dump_json().encode("utf-8"),
            # Por una tubería: si el disco está lleno, un fichero se quedaría sin la causa.
            stderr=subprocess.PIPE,
            env=_environment(),
            check=False,
        )
        lines = finished.stderr.decode("utf-8", errors="replace").strip().splitlines()
        return _outcome(finished.returncode, result, lines[-1].strip() if lines else "")


def describe_isolated(device: str, command: Sequence[str] = CHILD_COMMAND) -> str:
    """El nombre de la tarjeta, preguntado en otro proceso: este no llega a abrir CUDA.

    Raises:
        HardwareError: la máquina no tiene ese dispositivo.
    """
    done = subprocess.run(
        [*command, _DESCRIBE, device],
        capture_output=True,
        text=True,
        env=_environment(),
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        unknown = f"no se ha podido preguntar qué tarjeta hay (código de salida {done.returncode})"
        raise HardwareError(lines[-1] if lines else unknown)
    return done.stdout.strip()


def _remove_orphans(scratch_root: Path) -> None:
    """Borra las carpetas temporales de procesos que murieron sin poder hacerlo."""
    for folder in scratch_root.glob(f"{_SCRATCH_PREFIX}*-*"):
        owner = folder.name.removeprefix(_SCRATCH_PREFIX).split("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    """El entorno del hijo, que debe importar este mismo `enlace` desde cualquier carpeta."""
    package = enlace.__file__
    assert package is not None
    paths = [str(Path(package).parent.parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _outcome(code: int, result: Path, last_words: str) -> Outcome:
    if code == -signal.SIGKILL:
        return Failure(kind="killed", detail="SIGKILL")
    if code < 0:
        return Failure(kind="crashed", detail=_cause(signal.Signals(-code).name, last_words))
    if code == 0 and result.is_file():
        try:
            return _OUTCOME.validate_json(result.read_bytes())
        except ValidationError:
            return Failure(kind="crashed", detail="escribió un resultado ilegible")
    if last_words.startswith(USER_ERROR):  # disco lleno, sin permiso: ya trae su remedio
        return Failure(kind="refused", detail=last_words.removeprefix(USER_ERROR))
    return Failure(kind="crashed", detail=_cause(f"código de salida {code}", last_words))


def _cause(how: str, last_words: str) -> str:
    return f"{how}: {last_words[:_LAST_WORDS]}" if last_words else how
