"""Aceptar ediciones que no cambian lo que hace el código: comentarios, docstrings y formato.

Las dependencias completas tienen un precio: corregir una docstring invalidaría dos días de
entrenamiento. Esto apunta el código nuevo en `dvc.lock` sin ejecutar nada, pero solo después de
encontrar en git el código que de verdad se ejecutó y comprobar que los dos son iguales.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.yaml_io import read_yaml
from enlace.errors import EnlaceError
from enlace.pipeline import is_code
from enlace.provenance import normalized_source
from enlace.workspace.project import git_output, run_dvc

LOCK_FILE = Path("dvc.lock")
_NO_BLOB = "0" * 40


class Review(NamedTuple):
    """El examen de las etapas que DVC da por cambiadas."""

    accepted: dict[str, list[str]]
    """Etapa → ficheros que solo cambian en comentarios, docstrings o formato."""
    refused: dict[str, str]
    """Etapa → por qué no se puede aceptar."""


def review(root: Path) -> Review:
    """Examina lo que `dvc status` da por cambiado, sin tocar nada.

    Raises:
        EnlaceError: DVC o git no responden.
    """
    status: dict[str, Any] = json.loads(run_dvc(["status", "--json"], root) or "{}")
    locked = read_yaml(root / LOCK_FILE).get("stages", {}) if (root / LOCK_FILE).is_file() else {}
    accepted: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for stage, changes in status.items():
        if stage not in locked:
            continue  # nunca se ha ejecutado, o es data/raw.dvc: no hay nada que aceptar
        try:
            accepted[stage] = _acceptable(changes, locked[stage], root)
        except EnlaceError as error:
            refused[stage] = str(error)
    return Review(accepted, refused)


def commit(stages: list[str], root: Path) -> None:
    """Apunta en `dvc.lock` las dependencias actuales de esas etapas y de ninguna más."""
    run_dvc(["commit", "--force", *stages], root)


def _acceptable(changes: list[Any], locked: dict[str, Any], root: Path) -> list[str]:
    """Los ficheros de una etapa que cambian sin efecto.

    Raises:
        EnlaceError: algo cambió de verdad; dice qué.
    """
    recorded = {dep["path"]: dep.get("md5") for dep in locked.get("deps", [])}
    files: list[str] = []
    for change in changes:
        if not isinstance(change, dict) or set(change) != {"changed deps"}:
            what = ", ".join(change) if isinstance(change, dict) else str(change)
            raise EnlaceError(f"no solo cambió el código ({_translate(what)})")
        for path, kind in change["changed deps"].items():
            if not is_code(path):
                raise EnlaceError(f"no solo cambió el código: también {_describe(path, kind)}")
            if kind != "modified" or recorded.get(path) is None:
                raise EnlaceError(f"{path} no estaba cuando se ejecutó, o ya no está")
            _check_equivalent(path, recorded[path], root)
            files.append(path)
    return files


def _check_equivalent(path: str, md5: str, root: Path) -> None:
    old = _blob_with_md5(path, md5, root)
    if old is None:
        raise EnlaceError(
            f"{path}: la versión que se ejecutó (md5 {md5}) no está en la historia de git, y sin "
            "ella no se puede comparar"
        )
    try:
        same = normalized_source(old.decode("utf-8")) == normalized_source(
            (root / path).read_text(encoding="utf-8")
        )
    except (SyntaxError, UnicodeDecodeError) as error:
        raise EnlaceError(f"{path}: no se puede comparar ({error})") from error
    if not same:
        raise EnlaceError(f"{path} cambia más que comentarios, docstrings o formato")


def _blob_with_md5(path: str, md5: str, root: Path) -> bytes | None:
    """El contenido que tuvo `path` en algún commit de cualquier rama o experimento con ese md5."""
    history = git_output(
        root, "log", "--all", "--reflog", "-m", "--format=", "--raw", "--no-abbrev", "--", path
    )
    candidates: dict[str, None] = {}
    for line in history.decode("utf-8", "replace").splitlines():
        if line.startswith(":"):
            _, _, before, after, _ = line.split(maxsplit=4)
            candidates |= {after: None, before: None}
    staged = git_output(root, "ls-files", "--stage", "--", path).decode("utf-8", "replace").split()
    candidates |= {staged[1]: None} if staged else {}
    for blob in candidates:
        if blob == _NO_BLOB:
            continue
        content = git_output(root, "cat-file", "blob", blob)
        # MD5 es el resumen con el que DVC identifica los ficheros; aquí no protege nada.
        if hashlib.md5(content, usedforsecurity=False).hexdigest() == md5:
            return content
    return None


def _describe(path: str, kind: Any) -> str:
    if isinstance(kind, dict):
        return f"{', '.join(kind)} en {path}"
    return path


def _translate(what: str) -> str:
    words = {
        "changed outs": "los resultados",
        "changed command": "la orden",
        "changed deps": "las dependencias",
    }
    for english, spanish in words.items():
        what = what.replace(english, spanish)
    return what
