"""Una unidad de systemd del usuario que sigue el entrenamiento tras un corte de luz o un reinicio.

`dvc repro` acaba con el mismo código sea cual sea el de la etapa, así que la unidad no llama a DVC:
llama a `run_service`, que averigua por un fichero cómo acabó la etapa y sale con ese código. Con él
systemd distingue lo que se arregla repitiendo (un corte, una tarjeta que falla) de lo que no (la
configuración, una divergencia).
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from enlace.errors import GO_ON, ConfigError, EnlaceError, TrainingAbortedError
from enlace.files import write_text
from enlace.process import EXIT_FILE
from enlace.workspace.dvclock import unlock
from enlace.workspace.params import require_run
from enlace.workspace.project import dvc_environment

_UNKNOWN = 1
_NO_RESTART = (EnlaceError.exit_code, TrainingAbortedError.exit_code)
"""Códigos que repetir no arregla: un error del usuario y una regla numérica."""
_STOPPED = (GO_ON, 129, 130, 143)
"""Códigos de quien paró porque se le pidió: un límite, o una señal a la etapa."""

_UNIT = """\
[Unit]
Description=ENLACE: entrenar {run}
StartLimitIntervalSec=1h
StartLimitBurst=5

[Service]
Type=exec
WorkingDirectory={root}
# Los dos puntos: sin ellos, systemd cambiaría los «$» de la ruta. Y env: la ruta del programa no
# admite comillas ni barras invertidas, y la de un argumento sí.
ExecStart=:/usr/bin/env {python} -m enlace.cli service-run -- {run}
Restart=on-failure
RestartSec=60
RestartPreventExitStatus={no_restart}
SuccessExitStatus={stopped}
# La señal de parada llega a todos, y el entrenador guarda antes de salir.
KillMode=control-group
TimeoutStopSec=120

[Install]
WantedBy=default.target
"""


def unit_name(run: str) -> str:
    """El nombre de la unidad de un run."""
    return f"enlace-{run}.service"


def unit_path(run: str) -> Path:
    """Dónde va la unidad de un run (XDG_CONFIG_HOME, o ~/.config)."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd/user" / unit_name(run)


def unit_text(run: str, root: Path, python: Path) -> str:
    """La unidad que entrena `run` en el proyecto `root` (rutas absolutas).

    Raises:
        ConfigError: systemd no admite alguna de las rutas.
    """
    for path in (root, python):
        if re.search(r"[\x00-\x1f\x7f]", str(path)) or str(path) != str(path).strip():
            raise ConfigError(
                f"{str(path)!r} tiene caracteres que systemd no admite; mueve el proyecto a otra "
                "carpeta"
            )
    return _UNIT.format(
        run=run,
        root=str(root).replace("%", "%%"),
        python=_quoted(str(python)),
        no_restart=" ".join(map(str, _NO_RESTART)),
        stopped=" ".join(map(str, _STOPPED)),
    )


def install(run: str, root: Path) -> list[str]:
    """Escribe la unidad y devuelve lo que falta por hacer, en líneas."""
    path = unit_path(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Sin resolver enlaces: el Python de un venv es un enlace al del sistema.
    write_text(path, unit_text(run, root.resolve(), Path(sys.executable)))
    return [
        f"escrita {path}; para ponerla en marcha:",
        "  systemctl --user daemon-reload",
        f"  systemctl --user enable --now {unit_name(run)}",
        '  loginctl enable-linger "$USER"   # que arranque sin iniciar sesión',
        f"para verla: journalctl --user -fu {unit_name(run)}",
        f"para pararla: systemctl --user stop {unit_name(run)}",
        "en WSL2, antes: [boot] systemd=true en /etc/wsl.conf (docs/running.md)",
    ]


def uninstall(run: str) -> list[str]:
    """Borra la unidad y devuelve lo que falta por hacer, en líneas."""
    path = unit_path(run)
    if not path.exists():
        return [f"{path} no existe: no hay nada que quitar"]
    path.unlink()
    name = unit_name(run)
    return [
        f"borrada {path}; para que systemd la olvide:",
        f"  systemctl --user stop {name}",
        f'  rm -f "{path.parent / "default.target.wants" / name}"',
        "  systemctl --user daemon-reload",
    ]


def run_service(run: str, root: Path) -> NoReturn:
    """Entrena `run` hasta que acabe, y sale con el código de la etapa.

    Raises:
        ConfigError: params.yaml es ya de otro run.
        LockError: el cerrojo de DVC está dañado y hay un DVC vivo.
    """
    require_run(run, root)
    # Un corte de luz puede dejar vacío el cerrojo de DVC, y entonces nada funcionaría.
    unlock(root)
    with tempfile.TemporaryDirectory(prefix="enlace-") as folder:
        exit_file = Path(folder) / "exit"
        code = subprocess.run(
            [sys.executable, "-m", "dvc", "repro", "--pull", "pretrain"],
            cwd=root,
            env=dvc_environment() | {EXIT_FILE: str(exit_file)},
            check=False,
        ).returncode
        if code and exit_file.is_file():
            code = int(exit_file.read_text(encoding="ascii")) or _UNKNOWN
    raise SystemExit(code if code in range(256) else _UNKNOWN)


def _quoted(text: str) -> str:
    """Un argumento entre comillas, como lo lee systemd (systemd.service(5), «Command lines»)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
