"""La raíz del proyecto y la manera de llamar a DVC y a git desde ella."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from enlace.config.load import RUNS_FOLDER
from enlace.config.views import PIPELINE_FILE
from enlace.errors import ConfigError, EnlaceError
from enlace.process import die_with_parent

DVC_CLI = "enlace.workspace.dvc_cli"
"""El módulo que es DVC con sus errores explicados; un proceso con él también es DVC."""


def find_root(start: Path) -> Path:
    """La carpeta del proyecto que contiene a `start` (la que tiene dvc.yaml y configs/runs).

    No se busca por params.yaml: quien lo ha perdido necesita `enlace params` para rehacerlo.

    Raises:
        ConfigError: si `start` no está dentro de un proyecto ENLACE.
    """
    for folder in (start, *start.parents):
        if (folder / PIPELINE_FILE).is_file() and (folder / RUNS_FOLDER).is_dir():
            return folder
    raise ConfigError(
        f"{start} no está dentro de un proyecto ENLACE (no hay {PIPELINE_FILE} ni {RUNS_FOLDER}); "
        "entra en la carpeta que clonaste y repite la orden"
    )


def enter_project() -> Path:
    """Entra en la raíz del proyecto y la devuelve como ruta relativa, para mensajes cortos."""
    os.chdir(find_root(Path.cwd()))
    return Path()


def dvc_environment() -> dict[str, str]:
    """El entorno para DVC: el Python de este entorno es el primero que encuentran las etapas."""
    environment = dict(os.environ)
    # Las etapas llaman a `python`; sin esto, fuera de un venv activado sería otro Python.
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )
    return environment


def run_dvc(arguments: Sequence[str], root: Path) -> str:
    """Ejecuta DVC en `root` y devuelve lo que escribe en su salida estándar.

    Raises:
        EnlaceError: DVC falla; el mensaje lleva su primera línea de error.
    """
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=root,
        env=dvc_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise EnlaceError(_explain(arguments, done.stderr or done.stdout))
    return done.stdout


def become_dvc(arguments: Sequence[str], with_parent: bool) -> NoReturn:
    """Sustituye este proceso por DVC, que hereda terminal, señales y código de salida.

    Con `with_parent`, DVC recibe SIGTERM cuando muera el proceso que llamó (make): la petición
    sobrevive al cambio de programa, y así ni un SIGKILL a make deja un entrenamiento huérfano.
    """
    if with_parent:
        die_with_parent()
    sys.stdout.flush()
    command = [sys.executable, "-m", DVC_CLI, *arguments]
    os.execve(sys.executable, command, dvc_environment())  # noqa: S606 - sin shell, a propósito


def git_output(root: Path, *arguments: str) -> bytes:
    """La salida de una orden de git que debe funcionar.

    Raises:
        EnlaceError: git falta o la orden falla.
    """
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        raise EnlaceError("git no está instalado; instálalo y repite la orden") from None
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["sin mensaje"]
        raise EnlaceError(f"git {arguments[0]} ha fallado en {root}: {reason[0]}")
    return done.stdout


def _explain(arguments: Sequence[str], output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["sin mensaje"])[0]
    message = f"dvc {arguments[0]} ha fallado: {reason}"
    if "RWLock" in reason:
        return f"{message}; ejecuta `make unlock`"
    if "is busy" in output or "Unable to acquire lock" in output:
        return f"{message}; hay otro DVC en marcha: espera a que acabe o mira `make status`"
    return message
