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
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from enlace.config.schema import TrainConfig
from enlace.errors import CheckpointError
from enlace.files import TEMPORARY_PREFIX, atomic_dir, remove_temporaries, sha256_file, write_json
from enlace.train.schedule import decay_start

CHECKPOINTS = "checkpoints"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
DIGEST = "state.sha256"
STATE_VERSION = 1

_MAX_JSON_BYTES = 1 << 26
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


def save_checkpoint(
    run_dir: Path,
    state: Mapping[str, Any],
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
) -> Path:
    """Escribe el checkpoint de `state["step"]`, lo relee entero y devuelve su carpeta.

    Raises:
        CheckpointError: no se pudo escribir (disco lleno, permisos); los anteriores no se tocan.
    """
    path = checkpoint_dir(run_dir, state["step"])
    with writing(path):
        with atomic_dir(path) as temporary:
            write_tensors(temporary / MODEL, model)
            write_tensors(temporary / OPTIMIZER, optimizer)
            files = {name: sha256_file(temporary / name) for name in (MODEL, OPTIMIZER)}
            write_json(temporary / STATE, {**state, "files": files})
            digest = sha256_file(temporary / STATE)
            (temporary / DIGEST).write_text(f"{digest}  {STATE}\n", encoding="utf-8")
        verify_checkpoint(path)
    return path


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """Comprueba los resúmenes de todos los ficheros de un checkpoint y devuelve su estado.

    Raises:
        CheckpointError: falta algo, no coincide un resumen o el estado no tiene la forma debida.
    """
    state = read_state(path)
    for name in (MODEL, OPTIMIZER):
        check_digest(path / name, state["files"].get(name))
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Lee `state.json`, comprobado contra su resumen y contra la forma que debe tener.

    Raises:
        CheckpointError: el estado falta, está dañado o lo escribió otra versión del formato.
    """
    try:
        digest = (path / DIGEST).read_text(encoding="utf-8")[:64]
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} está incompleto: no se puede leer {DIGEST}") from error
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
    for path in reversed(_folders(run_dir)):
        try:
            return Found(path, verify_checkpoint(path), tuple(rejected))
        except CheckpointError as error:
            rejected.append(str(error))
    if rejected:
        raise CheckpointError(
            f"ningún checkpoint de {run_dir / CHECKPOINTS} sirve ({'; '.join(rejected)}); "
            "aparta esa carpeta para empezar de cero"
        )
    return None


def prune(run_dir: Path, train: TrainConfig) -> list[Path]:
    """Borra los checkpoints que ya no hacen falta y devuelve cuáles eran.

    Se quedan los `keep_last` últimos, el de mejor validación, uno cada `keep_every` pasos y, con
    WSD, el que precede al decaimiento: de él parte una rama más larga. Los que no se pueden leer
    no se tocan: quizá los escribió otra versión.
    """
    states: dict[Path, dict[str, Any]] = {}
    for path in _folders(run_dir):
        try:
            states[path] = read_state(path)
        except CheckpointError:
            continue
    kept = set(list(states)[-train.keep_last :])
    validated = [
        (state["evaluation"]["val_loss"], state["step"], path)
        for path, state in states.items()
        if state["evaluation"].get("val_loss") is not None
    ]
    kept |= {min(validated)[2]} if validated else set()
    removed = [
        path
        for path, state in states.items()
        if path not in kept and not is_milestone(state["step"], train)
    ]
    for path in removed:
        # Primero el nombre: un borrado a medias no debe parecer un checkpoint roto.
        retired = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-borrado")
        os.rename(path, retired)
        shutil.rmtree(retired)
    return removed


def is_milestone(step: int, train: TrainConfig) -> bool:
    """Si el checkpoint de `step` se conserva siempre, haya los que haya después."""
    periodic = train.keep_every > 0 and step % train.keep_every == 0
    return periodic or is_branch_point(step, train)


def is_branch_point(step: int, train: TrainConfig) -> bool:
    """Si `step` pasos son los justos antes de que WSD empiece a decaer."""
    return train.schedule == "wsd" and train.decay_steps > 0 and step == decay_start(train)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Escribe un safetensors (sin fsync: lo hace `atomic_dir`)."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, path, metadata={"format": "pt"})


def check_digest(path: Path, expected: object) -> None:
    """Compara un fichero con su SHA-256.

    Raises:
        CheckpointError: el fichero falta o no es el que se escribió.
    """
    try:
        found = sha256_file(path)
    except OSError as error:
        raise CheckpointError(f"{path} no se puede leer: {error.strerror}") from error
    if found != expected:
        raise CheckpointError(f"{path} está dañado: su SHA-256 no es el que se anotó al escribirlo")


def read_json_object(path: Path) -> dict[str, Any]:
    """Lee un objeto JSON de tamaño acotado.

    Raises:
        CheckpointError: falta, es desmedido o no es un objeto JSON.
    """
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise CheckpointError(f"{path} mide más de {_MAX_JSON_BYTES} bytes: no es de enlace")
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} no se puede leer: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} no es JSON") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} no es un objeto JSON")
    return value


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convierte un fallo del disco en un `CheckpointError` que dice qué sigue a salvo."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"no se ha podido escribir {path} ({error}); libera espacio y vuelve a lanzar: "
            "lo guardado antes sigue intacto"
        ) from error


def _folders(run_dir: Path) -> list[Path]:
    """Las carpetas de checkpoint, de la más antigua a la más nueva."""
    root = run_dir / CHECKPOINTS
    found = [
        (int(match[1]), path)
        for path in (root.iterdir() if root.is_dir() else ())
        if (match := _FOLDER.fullmatch(path.name)) and path.is_dir()
    ]
    return [path for _, path in sorted(found)]
