"""Volver a hacer un modelo desde un clon limpio: las órdenes exactas, y ejecutarlas.

Todo sale del manifiesto: el commit, el parche de lo que no estaba guardado, la configuración
entera. Los pesos del final se comparan con los anotados.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from enlace.config.load import PARAMS_FILE, write_params
from enlace.errors import EnlaceError
from enlace.files import sha256_file
from enlace.lineage.exactness import exact_until
from enlace.manifest import ParentRecord
from enlace.paths import private_folder
from enlace.provenance import versions
from enlace.train.artifact import MODEL, Artifact, run_checkpoints

_PARENTS = Path(".enlace/parents")


class Plan(NamedTuple):
    """Cómo repetir un modelo.

    Attributes:
        commands: las órdenes, tal como se escriben en un terminal.
        warnings: por qué el resultado podría no ser el mismo, bit a bit.
        blocked: por qué no se puede, o None.
    """

    commands: list[str]
    warnings: list[str]
    blocked: str | None


def plan(artifact: Artifact, folder: Path, root: Path) -> Plan:
    """Las órdenes que repiten `artifact` en un clon nuevo, `folder`."""
    origin, source = artifact.history.origin, artifact.path.resolve()
    patch = patch_of(artifact)
    target = shlex.quote(str(folder))
    commands = [f"git clone {shlex.quote(str(root.resolve()))} {target}", f"cd {target}"]
    if origin.git.commit is not None:
        commands.append(f"git checkout --quiet {origin.git.commit}")
    if patch is not None:
        commands.append(f"git apply {shlex.quote(str(patch))}")
    commands.append("make setup")
    commands.append(f".venv/bin/python -m enlace.cli restore-params {shlex.quote(str(source))}")
    if origin.parent is not None:
        stored = private_folder().resolve() / "parents" / origin.parent.sha256[:16]
        commands.append(f"mkdir -p {_PARENTS} && cp -r {shlex.quote(str(stored))} {_PARENTS}/")
    if artifact.config.data.source == "data/raw":
        commands.append(".venv/bin/python -m dvc pull data/raw")
    commands.append("PATH=$PWD/.venv/bin:$PATH dvc repro --no-run-cache pretrain")
    commands.append(f"sha256sum {result_name(artifact)}  # {artifact.weights_sha256}")
    return Plan(commands, _warnings(artifact), _obstacle(artifact, patch))


def reproduce(artifact: Artifact, folder: Path, root: Path, say: Callable[[str], None]) -> None:
    """Ejecuta el plan con el Python de este entorno y compara los pesos.

    Args:
        artifact: lo que se repite.
        folder: dónde se clona; no debe existir.
        root: el repositorio del que se clona.
        say: a quién se cuenta cada paso.

    Raises:
        EnlaceError: falta algo, una orden falla o los pesos no son los mismos.
    """
    blocked = _obstacle(artifact, patch_of(artifact))
    if blocked is not None:
        raise EnlaceError(f"no se puede repetir {artifact.path}: {blocked}")
    if folder.exists():
        raise EnlaceError(f"{folder} ya existe; da una carpeta nueva para el clon")
    origin, patch = artifact.history.origin, patch_of(artifact)
    _run(["git", "clone", "--quiet", str(root.resolve()), str(folder)], root, say)
    _run(["git", "checkout", "--quiet", str(origin.git.commit)], folder, say)
    if patch is not None:
        _run(["git", "apply", str(patch.resolve())], folder, say)
    say(f"escribo {PARAMS_FILE}")
    write_params(artifact.config, [], folder)
    if origin.parent is not None:
        _bring_parent(origin.parent, folder)
    if artifact.config.data.source == "data/raw":
        _run([sys.executable, "-m", "dvc", "pull", "data/raw"], folder, say)
    _run([sys.executable, "-m", "dvc", "repro", "--no-run-cache", "pretrain"], folder, say)
    _compare(artifact, folder, say)


def patch_of(artifact: Artifact) -> Path | None:
    """El parche del código del último segmento, si lo hubo y se guardó."""
    name = artifact.history.origin.git.patch_name
    # El de un checkpoint en curso está en la carpeta de su run.
    folders = (artifact.path, artifact.path.resolve().parent.parent)
    found = [folder / name for folder in folders if name and (folder / name).is_file()]
    return found[0] if found else None


def result_name(artifact: Artifact) -> Path:
    """Dónde deja el clon los pesos que corresponden a `artifact`."""
    if artifact.kind != "checkpoint":
        return Path("checkpoints/model") / MODEL
    run = Path("runs") / artifact.config.run_name / "checkpoints"
    return run / f"step_{artifact.step:08d}" / MODEL


def _obstacle(artifact: Artifact, patch: Path | None) -> str | None:
    git = artifact.history.origin.git
    if git.commit is None:
        return "se entrenó fuera de git y no se sabe con qué código"
    if git.patch_name is not None and patch is None:
        return (
            f"se entrenó con cambios sin guardar y su parche ({git.patch_name}) no está: o era "
            "demasiado grande o se borró su run"
        )
    parent = artifact.history.origin.parent
    if parent is not None and not _stored(parent).is_dir():
        return (
            f"parte de {parent.run_name} (paso {parent.step}) y no hay copia en {_stored(parent)}; "
            "repite antes al padre, o trae esa carpeta"
        )
    return None


def _warnings(artifact: Artifact) -> list[str]:
    found = []
    segments = artifact.history.segments
    until = exact_until(segments)
    if until is not None:
        found.append(f"desde el paso {until} no se promete la igualdad bit a bit: hubo cambios")
    now = versions()
    for name, version in sorted(segments[-1].versions.items()):
        if now.get(name) != version:
            found.append(f"{name}: se entrenó con {version} y aquí hay {now.get(name)}")
    found.append(f"se entrenó en {segments[-1].device} con {segments[-1].threads} hilos")
    return found


def _stored(parent: ParentRecord) -> Path:
    return private_folder() / "parents" / parent.sha256[:16]


def _bring_parent(parent: ParentRecord, folder: Path) -> None:
    target = folder / _PARENTS / parent.sha256[:16]
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(_stored(parent), target)


def _run(command: list[str], folder: Path, say: Callable[[str], None]) -> None:
    say(shlex.join(command))
    sys.stdout.flush()
    done = subprocess.run(command, cwd=folder, env=_environment(), check=False)
    if done.returncode != 0:
        raise EnlaceError(
            f"{shlex.join(command)} ha acabado con código {done.returncode} en {folder}; "
            "lo de arriba dice por qué"
        )


def _environment() -> dict[str, str]:
    """El entorno de las órdenes: el Python de este programa, y el clon como única raíz."""
    environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
    path = environment.get("PATH", os.defpath)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
    return environment


def _compare(artifact: Artifact, folder: Path, say: Callable[[str], None]) -> None:
    made, expected = folder / result_name(artifact), artifact.weights_sha256
    if not made.is_file():
        kept = ", ".join(path.name for path in run_checkpoints(made.parent.parent.parent))
        raise EnlaceError(
            f"el clon no conservó el paso {artifact.step} (quedan {kept or 'ninguno'}); repite "
            "el modelo exportado, o sube train.keep_last"
        )
    found = sha256_file(made)
    if found != expected:
        raise EnlaceError(
            f"{made} tiene SHA-256 {found} y el manifiesto dice {expected}: no es el mismo modelo"
        )
    say(f"los pesos son los mismos, bit a bit: {found}")
