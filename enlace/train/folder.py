"""La carpeta de un run: cuál es la actual y qué se hace con una terminada por otro código."""

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enlace.errors import CheckpointError
from enlace.files import fsync_dir, write_bytes
from enlace.train.artifact import TOKENIZER
from enlace.train.checkpoint import newest_complete

CODE_KEY = "code_normalized"


def point_to(folder: Path, link: Path) -> None:
    """Hace que el enlace simbólico `link` señale a `folder`, de una vez.

    El destino se escribe relativo, para que mover el repositorio no lo rompa.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    # Quien escribe tiene `folder` en exclusiva: el nombre es suyo, y el que dejó un corte lo
    # recoge la próxima vez.
    temporary = link.with_name(f".tmp-{folder.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(folder, link.parent), target_is_directory=True)
    os.replace(temporary, link)
    fsync_dir(link.parent)


def keep_tokenizer(source: Path, folder: Path, fingerprint: str) -> None:
    """Copia el tokenizador en la carpeta del run: quien parta de un checkpoint suyo lo necesita.

    Args:
        source: la carpeta con el tokenizador.
        folder: la del run.
        fingerprint: el SHA-256 del que hizo los shards.

    Raises:
        CheckpointError: no es ese. Con otro, los bits por byte y el modelo entregado serían falsos.
    """
    path = source / TOKENIZER
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != fingerprint:
        raise CheckpointError(
            f"{path} no es el tokenizador de los shards ({fingerprint[:16]}…): falta, está dañado "
            f"o es otro; recupéralo con dvc checkout --force {source}"
        )
    kept = folder / TOKENIZER
    if not kept.is_file() or kept.read_bytes() != content:
        write_bytes(kept, content)


def retire_finished(folder: Path, origin: Mapping[str, Any], steps: int) -> Path | None:
    """Aparta lo que terminó con otro código, para que el entrenamiento empiece de nuevo.

    Un run sin terminar sigue aunque el código haya cambiado (un segmento nuevo lo anota); uno
    terminado con código que hace otra cosa ya no es el resultado que pide DVC. Cambiar comentarios
    o docstrings no cuenta. Los checkpoints apartados no se borran.

    Args:
        folder: la carpeta del run, que este proceso ya tiene en exclusiva.
        origin: las huellas de ahora, con `code_normalized`.
        steps: los pasos con los que el run se da por terminado.

    Returns:
        Dónde quedaron los checkpoints apartados, o None si no había nada que apartar.
    """
    found = newest_complete(folder)
    if found is None or found.state["counters"]["step"] < steps:
        return None
    if found.state["origin"].get(CODE_KEY) == origin[CODE_KEY]:
        return None
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    retired = folder / f"retired-{moment}"
    os.rename(found.path.parent, retired)
    fsync_dir(folder)
    return retired
