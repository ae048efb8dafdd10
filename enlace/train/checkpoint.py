"""Los checkpoints: carpetas que existen enteras o no existen.

    run_dir/checkpoints/step_00000100/
        model.safetensors       pesos
        optimizer.safetensors   momentos de AdamW y estado de los generadores de azar
        state.json              cuentas, escala, stream, configuración, origen y SHA-256 de lo demás
        state.sha256            SHA-256 de state.json

Se escriben en una carpeta temporal, se llevan al disco, se renombran y se releen; solo entonces se
borran los que sobran. Nada es pickle: son tensores planos y JSON que una persona puede leer.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError

from enlace.errors import CheckpointError, cause_of
from enlace.files import atomic_dir, remove_temporaries
from enlace.train.disk import check_free, forget_cached, write_hashed
from enlace.train.snapshot import Snapshot
from enlace.train.untrusted import (
    check_digest,
    check_digests,
    check_no_links,
    read_bounded,
    read_json_object,
)

CHECKPOINTS = "checkpoints"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
DIGEST = "state.sha256"
STATE_VERSION = 1

_STATE_MARGIN_BYTES = 1 << 20
"""Sitio para `state.json` y lo demás que no son tensores, al mirar si cabe un checkpoint."""
_MAX_DIGEST_BYTES = 256
_FOLDER = re.compile(r"step_(\d{8,})")
_STATE_TYPES: dict[str, type] = {
    "version": int,
    "step": int,
    "identity": str,
    "fingerprint": str,
    "config": dict,
    "counters": dict,
    "schedule": dict,
    "scaler": dict,
    "watch": dict,
    "stream": dict,
    "clock": dict,
    "evaluation": dict,
    "origin": dict,
    "segments": list,
    "files": dict,
}


class Found(NamedTuple):
    """Un checkpoint comprobado, y por qué no sirvieron los más nuevos que él."""

    path: Path
    state: dict[str, Any]
    rejected: tuple[str, ...]


def checkpoint_dir(run_dir: Path, step: int) -> Path:
    """La carpeta del checkpoint de un paso."""
    return run_dir / CHECKPOINTS / f"step_{step:08d}"


def step_of(path: Path) -> int:
    """El paso de una carpeta de `checkpoint_folders`."""
    return int(path.name.removeprefix("step_"))


def write_checkpoint(run_dir: Path, snapshot: Snapshot) -> Path:
    """Escribe un checkpoint, lo relee entero del disco y devuelve su carpeta.

    Puede repetirse tras un fallo: la instantánea no cambia y nada queda a medias.

    Raises:
        OSError: no cabe o no se pudo escribir; los anteriores no se tocan.
        CheckpointError: lo que se relee no es lo que se escribió.
    """
    path = checkpoint_dir(run_dir, snapshot.state["step"])
    path.parent.mkdir(parents=True, exist_ok=True)
    # Los restos de un intento fallido ocupan el sitio que este necesita.
    remove_temporaries(path.parent)
    check_free(path.parent, snapshot.nbytes + _STATE_MARGIN_BYTES)
    with atomic_dir(path) as temporary:
        files = {
            name: write_hashed(temporary / name, parts) for name, parts in snapshot.files.items()
        }
        state = {**snapshot.state, "files": files}
        text = json.dumps(state, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        digest = write_hashed(temporary / STATE, [text.encode("utf-8")])
        write_hashed(temporary / DIGEST, [_digest_text(digest).encode("utf-8")])
        forget_cached(temporary.iterdir())
    verify_checkpoint(path)
    return path


def _digest_text(digest: str) -> str:
    """El contenido de `state.sha256`, en el formato de `sha256sum`."""
    return f"{digest}  {STATE}\n"


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """Comprueba los resúmenes de todos los ficheros de un checkpoint y devuelve su estado.

    Raises:
        CheckpointError: falta algo, no coincide un resumen o el estado no tiene la forma debida.
    """
    state = read_state(path)
    check_digests(path, state["files"], required=(MODEL, OPTIMIZER))
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Lee `state.json`, comprobado contra su resumen y contra la forma que debe tener.

    Raises:
        CheckpointError: el estado falta, está dañado o lo escribió otra versión del formato.
    """
    text = read_bounded(path / DIGEST, _MAX_DIGEST_BYTES).decode("utf-8", errors="replace")
    digest = text.split(" ", 1)[0]
    if text != _digest_text(digest):
        raise CheckpointError(f"{path / DIGEST} está dañado: no es un SHA-256 de {STATE}")
    check_digest(path / STATE, digest)
    state = read_json_object(path / STATE)
    if state.get("version") != STATE_VERSION:
        raise CheckpointError(
            f"{path / STATE} tiene el formato {state.get('version')!r} y esta versión de enlace "
            f"lee el {STATE_VERSION}"
        )
    for key, kind in _STATE_TYPES.items():
        if not isinstance(state.get(key), kind):
            raise CheckpointError(f"{path / STATE} no tiene la clave {key} como {kind.__name__}")
    match = _FOLDER.fullmatch(path.name)
    if match and int(match[1]) != state["step"]:
        raise CheckpointError(f"{path} dice ser del paso {state['step']}: le cambiaron el nombre")
    return state


def newest_complete(run_dir: Path) -> Found | None:
    """El checkpoint más nuevo que pasa todas las comprobaciones; None si no hay ninguno.

    Borra antes los temporales que dejó una escritura interrumpida.

    Raises:
        CheckpointError: hay checkpoints y no sirve ninguno.
    """
    remove_temporaries(run_dir / CHECKPOINTS)
    rejected: list[str] = []
    for path in reversed(checkpoint_folders(run_dir)):
        try:
            check_no_links(path)
            return Found(path, verify_checkpoint(path), tuple(rejected))
        except CheckpointError as error:
            rejected.append(str(error))
    if rejected:
        raise CheckpointError(
            f"ningún checkpoint de {run_dir / CHECKPOINTS} sirve ({'; '.join(rejected)}); "
            "aparta esa carpeta para empezar de cero"
        )
    return None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convierte un fallo del disco en un `CheckpointError` que dice qué sigue a salvo."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"no se ha podido escribir {path} ({cause_of(error)}); libera espacio y vuelve a "
            "lanzar: lo guardado antes sigue intacto"
        ) from error


def checkpoint_folders(run_dir: Path) -> list[Path]:
    """Las carpetas de checkpoint, de la más antigua a la más nueva."""
    root = run_dir / CHECKPOINTS
    found = [
        (int(match[1]), path)
        for path in (root.iterdir() if root.is_dir() else ())
        if (match := _FOLDER.fullmatch(path.name)) and path.is_dir()
    ]
    return [path for _, path in sorted(found)]
