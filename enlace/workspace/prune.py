"""Borrar los runs terminados cuyo modelo ya está a salvo y las copias de padres que sobran.

A salvo quiere decir comprobado byte a byte: los pesos finales están en `checkpoints/model` o en una
carpeta guardada en la caché de DVC, junto con su manifiesto. No se toca nunca un run que alguien
usa, uno sin terminar ni el de `params.yaml`.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from enlace.config.load import PARAMS_FILE, load_config
from enlace.errors import EnlaceError
from enlace.figures import size
from enlace.files import TEMPORARY_PREFIX
from enlace.lineage.dvc_cache import cache_folder, listing, object_path
from enlace.lineage.hashing import Wanted, digest_all
from enlace.paths import MODEL as EXPORTED
from enlace.process import exclusive_lock
from enlace.train.artifact import MANIFEST, MODEL, open_artifact
from enlace.workspace.prune_parents import remove_parent, stored_parents
from enlace.workspace.runs import LOCK, RunSummary, list_runs


@dataclass(frozen=True)
class Candidate:
    """Una carpeta de run, lo que ocupa y, si no se puede borrar, por qué."""

    folder: Path
    nbytes: int
    kept: str | None


def candidates(root: Path) -> list[Candidate]:
    """Todos los runs de esta máquina y qué se puede hacer con cada uno."""
    current = load_config(root / PARAMS_FILE).identity()
    stored = _stored_models(root)
    return [
        Candidate(summary.folder, _size(summary.folder), _reason(summary, current, stored, root))
        for summary in list_runs(root)
    ]


def remove(folder: Path) -> None:
    """Borra un run terminado, con su cerrojo en la mano.

    Raises:
        LockError: alguien lo usa.
    """
    with exclusive_lock(folder / LOCK):
        # Primero el nombre: un borrado a medias no debe parecer un run roto.
        retired = folder.with_name(f"{TEMPORARY_PREFIX}{folder.name}-borrado")
        os.rename(folder, retired)
        for link in retired.parent.iterdir():
            if link.is_symlink() and link.readlink() == Path(folder.name):
                link.unlink()
        shutil.rmtree(retired)


def prune_lines(root: Path, yes: bool) -> Iterator[str]:
    """Lo que hay y lo que se hace con ello, una línea por cosa. Sin `yes` no borra nada.

    Después de los runs, las copias de padres que ya nadie de los que quedan nombra.
    """
    freed, gone = 0, []
    for item in candidates(root):
        if item.kept is None:
            gone.append(item.folder)
            freed += item.nbytes
            if yes:
                remove(item.folder)
        yield _line(item.folder.name, item.nbytes, item.kept, yes)
    for parent in stored_parents(root, gone):
        if parent.kept is None:
            freed += parent.nbytes
            if yes:
                remove_parent(parent.folder)
        yield _line(f"el padre {parent.label}", parent.nbytes, parent.kept, yes)
    if not freed:
        yield "no hay nada que borrar"
    elif yes:
        yield f"liberados {size(freed)}"
    else:
        yield f"se liberarían {size(freed)}; para hacerlo: make prune YES=1"


def _line(name: str, nbytes: int, kept: str | None, yes: bool) -> str:
    if kept is not None:
        return f"se queda {name} ({size(nbytes)}): {kept}"
    return f"{'borrado' if yes else 'se puede borrar'} {name} ({size(nbytes)})"


def _reason(
    summary: RunSummary, current: str, stored: dict[str, list[Path]], root: Path
) -> str | None:
    """Por qué se conserva; None si su modelo está a salvo y nadie lo necesita."""
    if summary.holder is not None:
        return f"lo usa el proceso {summary.holder.pid}"
    if summary.damaged:
        return f"{summary.damaged[0]} no se puede leer"
    if not summary.finished:
        return "sin terminar"
    if summary.identity == current:
        return f"es el de {PARAMS_FILE}"
    weights = summary.folder / "checkpoints" / f"step_{summary.step:08d}" / MODEL
    try:
        expected = open_artifact(summary.folder).files[MODEL]
    except EnlaceError as error:
        return str(error)
    if _exported(root, expected) or _cached(weights, expected, stored):
        return None
    return "su modelo no está en checkpoints/model ni en la caché de DVC"


def _exported(root: Path, weights: str) -> bool:
    with suppress(EnlaceError):
        artifact = open_artifact(root / EXPORTED)
        if artifact.files[MODEL] == weights:
            artifact.verify()
            return True
    return False


def _cached(weights: Path, sha256: str, stored: dict[str, list[Path]]) -> bool:
    """Si una carpeta entera de la caché, sana, tiene esos pesos."""
    own = digest_all([Wanted(weights, "md5"), Wanted(weights, "sha256")])
    md5 = own[Wanted(weights, "md5")]
    if own[Wanted(weights, "sha256")] != sha256 or not isinstance(md5, str):
        return False
    objects = stored.get(md5, [])
    found = digest_all(Wanted(path, "md5") for path in objects)
    return bool(objects) and all(
        digest == item.path.parent.name + item.path.name for item, digest in found.items()
    )


def _stored_models(root: Path) -> dict[str, list[Path]]:
    """{MD5 de unos pesos: los objetos de la carpeta de modelo que los contiene}."""
    cache = cache_folder(root)
    models: dict[str, list[Path]] = {}
    for path in sorted(cache.glob("*/*.dir")):
        with suppress(EnlaceError):
            files = listing(cache, path.parent.name + path.name)
            if {MODEL, MANIFEST} <= files.keys():
                models[files[MODEL]] = [object_path(cache, md5) for md5 in files.values()]
    return models


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
