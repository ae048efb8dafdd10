"""Qué copias de padres (`.enlace/parents/`) ya no hacen falta.

Una copia hace falta si algo que se conserva la nombra por su resumen: un `params.yaml` (el actual,
el de un experimento, el de una rama o etiqueta de git), el registro de un checkpoint o modelo de
este proyecto o de la caché de DVC, u otro padre que se queda. Se buscan los resúmenes en el texto,
sin interpretarlo: así también cuenta lo que escribió otra versión. Lo que se haya llevado fuera del
proyecto no se ve.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from enlace.config.load import PARAMS_FILE
from enlace.errors import EnlaceError
from enlace.files import TEMPORARY_PREFIX, remove_temporaries
from enlace.lineage.dvc_cache import cache_folder, listing, object_path
from enlace.process import exclusive_lock
from enlace.train.artifact import MANIFEST, STATE, open_artifact
from enlace.train.parent import store
from enlace.workspace.runs import training_now

_RECORDS = (STATE, MANIFEST)
_DIGEST = re.compile(r"""(?:"sha256"|init_sha256"?): ?["']?([0-9a-f]{16})[0-9a-f]{48}\b""")
"""Un resumen como lo nombran un `params.yaml`, una configuración guardada y un `ParentRecord`. Sin
la clave no vale: el resumen de unos pesos es también el de su fichero."""
_NAME = re.compile(r"[0-9a-f]{16}")
_NO_RECORDS = {"data", ".dvc", ".git", ".venv", ".enlace", "enlace", "tests", "docs", "configs"}
"""Carpetas de la raíz sin checkpoints de nadie, y que pueden ser enormes."""
_QUEUES = ("refs/stash", "refs/exps/stash", "refs/exps/celery/")
"""Donde git y DVC guardan pilas: de ellas cuenta cada entrada, no solo la última."""


@dataclass(frozen=True)
class StoredParent:
    """La copia de un padre, lo que ocupa, cómo se llama y, si no se puede borrar, por qué."""

    folder: Path
    nbytes: int
    label: str
    kept: str | None


def stored_parents(root: Path, gone: Collection[Path] = ()) -> list[StoredParent]:
    """Las copias de padres de esta máquina y qué se puede hacer con cada una.

    Args:
        root: la raíz del proyecto.
        gone: carpetas de run que se van a borrar; lo que nombran ya no cuenta.
    """
    folders = _folders()
    if not folders:
        return []
    # Uno que acaba de arrancar aún no ha escrito de quién parte.
    running = training_now(root)
    busy = f"hay un entrenamiento en marcha ({running[0].folder.name})" if running else None
    needed = {} if busy else _needed(root, gone, {folder.name: folder for folder in folders})
    return [
        StoredParent(folder, _size(folder), _label(folder), busy or needed.get(folder.name))
        for folder in folders
    ]


def remove_parent(folder: Path) -> None:
    """Borra la copia de un padre.

    Raises:
        LockError: otro proceso está guardando un padre.
    """
    with exclusive_lock(store().with_suffix(".lock")):
        # Primero el nombre: un borrado a medias no debe parecer un padre roto.
        retired = folder.with_name(f"{TEMPORARY_PREFIX}{folder.name}-borrado")
        os.rename(folder, retired)
        shutil.rmtree(retired)
        remove_temporaries(store())


def _folders() -> list[Path]:
    found = store().iterdir() if store().is_dir() else ()
    return sorted(path for path in found if _NAME.fullmatch(path.name) and path.is_dir())


def _needed(root: Path, gone: Collection[Path], stored: dict[str, Path]) -> dict[str, str]:
    """{copia: quién la nombra}, también a través de otras copias que se quedan."""
    needed: dict[str, str] = {}
    for text, where in _sources(root, gone):
        _note(text, where, needed, stored)
    pending = list(needed)
    while pending:
        name = pending.pop()
        before = set(needed)
        for record in _RECORDS:
            _note(_read(stored[name] / record), f"el padre {name}", needed, stored)
        pending += needed.keys() - before
    return needed


def _note(text: str, where: str, needed: dict[str, str], stored: dict[str, Path]) -> None:
    for name in _DIGEST.findall(text):
        if name in stored:
            needed.setdefault(name, f"lo nombra {where}")


def _sources(root: Path, gone: Collection[Path]) -> Iterator[tuple[str, str]]:
    """(texto, de dónde es) de todo lo que puede nombrar a un padre."""
    yield _read(root / PARAMS_FILE), str(PARAMS_FILE)
    for path in sorted(root.glob(f".dvc/tmp/exps/*/{PARAMS_FILE}")):
        yield _read(path), f"un experimento en marcha ({path.parent.name})"
    yield _committed(root), f"un {PARAMS_FILE} guardado en git"
    for path in _records(root, gone):
        yield _read(path), str(path.relative_to(root))
    cache = cache_folder(root)
    for path in sorted(cache.glob("*/*.dir")):
        with suppress(EnlaceError):
            files = listing(cache, path.parent.name + path.name)
            for name in _RECORDS:
                if name in files:
                    yield _read(object_path(cache, files[name])), "un modelo de la caché de DVC"


def _records(root: Path, gone: Collection[Path]) -> Iterator[Path]:
    removed = {path.resolve() for path in gone}
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not (here == root and name in _NO_RECORDS) and (here / name).resolve() not in removed
        )
        yield from (here / name for name in _RECORDS if name in files)


def _committed(root: Path) -> str:
    """Las líneas con el resumen de un padre en el `params.yaml` de cada referencia de git.

    Raises:
        EnlaceError: git falla, y sin esas líneas no se sabe qué sobra.
    """
    inside = subprocess.run(["git", "rev-parse"], cwd=root, capture_output=True, check=False)
    if inside.returncode != 0:
        return ""
    kinds = "%(refname) %(objecttype) %(*objecttype)"
    lines = _git(root, "for-each-ref", f"--format={kinds}").splitlines()
    names = [line.split()[0] for line in lines if "commit" in line.split()[1:]]
    queues = [name for name in names if name.startswith(_QUEUES)]
    entries = _git(root, "rev-list", "--walk-reflogs", *queues).split() if queues else []
    refs = [*names, *entries]
    return _git(root, "grep", "-h", "init_sha256", *refs, "--", str(PARAMS_FILE)) if refs else ""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    # `git grep` sin nada que enseñar acaba con 1.
    if done.returncode not in (0, 1):
        raise EnlaceError(f"git {arguments[0]} ha fallado ({done.stderr.strip()}); no borro padres")
    return done.stdout


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _label(folder: Path) -> str:
    with suppress(EnlaceError):
        artifact = open_artifact(folder)
        return f"{folder.name}, de {artifact.config.run_name}, paso {artifact.step}"
    return folder.name


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
