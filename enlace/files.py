"""Escrituras enteras (temporal + fsync + rename), resúmenes SHA-256 y JSON canónico.

Un fichero o una carpeta escritos con estas funciones existen completos o no existen: un corte de
luz en mitad de la escritura deja lo anterior intacto y, a lo sumo, un temporal `.tmp-…` huérfano,
que borra `remove_temporaries`.
"""

import ctypes
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEMPORARY_PREFIX = ".tmp-"
_RETIRED_PREFIX = f"{TEMPORARY_PREFIX}old-"
_TOKEN_BYTES = 6
_TOKEN_PATTERN = "[0-9a-f]" * (2 * _TOKEN_BYTES)
_AT_FDCWD = -100
# Los que da escribir en un fichero abierto, sin decir cuál.
_DISK_FAULTS = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}
_RENAME_EXCHANGE = 2


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

    Si el bloque falla, el temporal se borra y `path` queda como estaba. El fichero nuevo lleva los
    permisos de la umask, y si `path` era un enlace se sustituye el enlace, no lo enlazado.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _sibling(TEMPORARY_PREFIX, path)
    # Crear el fichero aquí, y no con mkstemp, deja que el sistema aplique la umask: leerla obliga
    # a cambiarla un instante, y otro hilo podría crear un fichero justo entonces.
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield temporary
        fsync_file(temporary)
        os.replace(temporary, path)
        fsync_dir(path.parent)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        _name(error, path, temporary)
        raise


@contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """Cede una carpeta temporal vecina de `path`; al salir bien la fija y la pone en su lugar.

    Si `path` ya existe, las dos se intercambian de una vez: no hay instante en que falte. Donde el
    sistema de ficheros no sabe intercambiar, la anterior se aparta antes; un corte entre los dos
    renombrados lo deshace `remove_temporaries`, o la siguiente escritura de `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _restore_retired(path.parent, path.name)
    temporary = _sibling(TEMPORARY_PREFIX, path)
    if os.path.ismount(path):
        # No se puede sustituir, y saberlo al final costaría todo el trabajo del bloque.
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
    try:
        temporary.mkdir()
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if not file.is_symlink():
                fsync_dir(file) if file.is_dir() else fsync_file(file)
        fsync_dir(temporary)
        _put_in_place(temporary, path)
        fsync_dir(path.parent)
    except OSError as error:
        _name(error, path, temporary)
        raise
    finally:
        # Aquí queda lo escrito a medias o, tras un intercambio, la carpeta anterior.
        _remove(temporary)


def _name(error: BaseException, path: Path, temporary: Path) -> None:
    """Que el fallo nombre lo que se quería escribir: el temporal ya no está."""
    if not isinstance(error, OSError):
        return
    attribute = "filename" if error.filename2 is None else "filename2"
    named = getattr(error, attribute)
    if named is None and error.errno in _DISK_FAULTS:
        error.filename = str(path)
    elif isinstance(named, str) and Path(named).is_relative_to(temporary):
        setattr(error, attribute, str(path / Path(named).relative_to(temporary)))


def _put_in_place(temporary: Path, path: Path) -> None:
    if not os.path.lexists(path):
        os.rename(temporary, path)
        return
    if _exchange(temporary, path):
        return
    retired = _sibling(_RETIRED_PREFIX, path)
    os.rename(path, retired)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(retired, path)
        raise
    _remove(retired)


def _exchange(first: Path, second: Path) -> bool:
    """Intercambia dos rutas de una vez (renameat2); False si aquí no se puede."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    names = (os.fsencode(first), os.fsencode(second))
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(second))


def _sibling(prefix: str, path: Path) -> Path:
    return path.with_name(f"{prefix}{secrets.token_hex(_TOKEN_BYTES)}-{path.name}")


def _restore_retired(folder: Path, name: str = "*") -> None:
    """Devuelve a su sitio la carpeta apartada por una escritura que se cortó a medio cambio."""
    pattern = name if name == "*" else glob.escape(name)
    for retired in sorted(folder.glob(f"{_RETIRED_PREFIX}{_TOKEN_PATTERN}-{pattern}")):
        _, _, original = retired.name.removeprefix(_RETIRED_PREFIX).partition("-")
        if not os.path.lexists(folder / original):
            os.rename(retired, folder / original)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remove_temporaries(folder: Path, name: str = "*") -> list[Path]:
    """Borra los temporales que un corte dejó en `folder` y devuelve cuáles eran.

    Con `name`, solo los de las escrituras de ese fichero o carpeta. Antes devuelve a su sitio la
    carpeta que se hubiera apartado sin llegar a sustituirla. Solo puede llamarla quien tenga la
    carpeta para sí: se llevaría lo que otro proceso está escribiendo.
    """
    if not folder.is_dir():
        return []
    _restore_retired(folder, name)
    patterns = [f"{TEMPORARY_PREFIX}*"]
    if name != "*":
        prefixes = (TEMPORARY_PREFIX, _RETIRED_PREFIX)
        patterns = [f"{prefix}{_TOKEN_PATTERN}-{glob.escape(name)}" for prefix in prefixes]
    orphans = sorted(path for pattern in patterns for path in folder.glob(pattern))
    for orphan in orphans:
        _remove(orphan)
    return orphans
