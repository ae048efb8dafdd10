"""Escrituras enteras (temporal + fsync + rename), resúmenes SHA-256 y JSON canónico.

Un fichero o una carpeta escritos con estas funciones existen completos o no existen: un corte de
luz en mitad de la escritura deja lo anterior intacto y, a lo sumo, un temporal `.tmp-…` huérfano.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEMPORARY_PREFIX = ".tmp-"
_READ_BLOCK = 1 << 20


def fsync_dir(path: Path) -> None:
    """Lleva al disco las entradas de una carpeta (los renombrados que contiene)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Lleva al disco el contenido de un fichero ya escrito."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Cede una ruta temporal vecina de `path`; al salir bien la fija en el disco y la renombra.

    Si el bloque falla, el temporal se borra y `path` queda como estaba.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{TEMPORARY_PREFIX}{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        fsync_file(temporary)
        os.replace(temporary, path)
        fsync_dir(path.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


@contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """Cede una carpeta temporal vecina de `path`; al salir bien la fija y la pone en su lugar.

    Una carpeta anterior con el mismo nombre se aparta antes del renombrado y se borra después, de
    modo que en ningún momento hay bajo `path` una mezcla de las dos.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}{path.name}-", dir=path.parent))
    temporary.chmod(0o755)
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            fsync_dir(file) if file.is_dir() else fsync_file(file)
        fsync_dir(temporary)
        retired = temporary.with_name(temporary.name + "-anterior")
        if path.exists():
            os.rename(path, retired)
        os.rename(temporary, path)
        fsync_dir(path.parent)
        shutil.rmtree(retired, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Escribe `content` en `path`, entero o nada."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Escribe texto UTF-8 en `path`, entero o nada."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Escribe JSON legible (sangría, claves en el orden dado, salto final), entero o nada."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def canonical_json(value: Any) -> str:
    """JSON único para cada valor: claves ordenadas, sin espacios, sin NaN ni infinitos."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def sha256_json(value: Any) -> str:
    """SHA-256 hexadecimal del JSON canónico de `value`."""
    return hashlib.sha256(canonical_json(value).encode("utf-8")).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 hexadecimal del contenido de un fichero, leído por bloques."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_READ_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def remove_temporaries(folder: Path) -> list[Path]:
    """Borra los temporales que un corte dejó en `folder` y devuelve cuáles eran."""
    orphans = sorted(folder.glob(f"{TEMPORARY_PREFIX}*")) if folder.is_dir() else []
    for orphan in orphans:
        shutil.rmtree(orphan) if orphan.is_dir() else orphan.unlink()
    return orphans
