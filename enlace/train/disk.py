"""Del búfer al disco: escribir calculando el SHA-256 de camino, y mirar si hay sitio."""

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage

_BLOCK_BYTES = 1 << 23
_SYNC_FILE_RANGE_WRITE = 2


def write_hashed(path: Path, parts: Iterable[bytes | memoryview]) -> str:
    """Escribe `parts` seguidas en un fichero nuevo, lo lleva al disco y devuelve su SHA-256.

    Los datos se leen una vez: cada bloque se escribe, se anuncia al disco y se resume mientras el
    disco trabaja. Nada se copia.

    Raises:
        OSError: no se pudo escribir entero, o ya existe.
    """
    digest, position = hashlib.sha256(), 0
    announce = _writeback()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), _BLOCK_BYTES):
                block = view[start : start + _BLOCK_BYTES]
                _write_all(descriptor, block, path)
                announce(descriptor, position, len(block))
                digest.update(block)
                position += len(block)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def forget_cached(paths: Iterable[Path]) -> None:
    """Suelta lo que el sistema guarda en memoria de unos ficheros ya llevados al disco.

    Así la siguiente lectura es del disco y no de lo recién escrito. Es una sugerencia: donde no
    se pueda, no pasa nada.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def check_free(folder: Path, needed: int) -> None:
    """Comprueba que en el disco de `folder` caben `needed` bytes.

    Raises:
        OSError: ENOSPC, con las dos cifras.
    """
    free = disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"hacen falta {mebibytes(needed)} y quedan {mebibytes(free)}")


def mebibytes(count: int) -> str:
    """Un tamaño legible."""
    return f"{count / 2**20:.1f} MiB"


def _write_all(descriptor: int, block: memoryview, path: Path) -> None:
    """Como `os.write`, que puede escribir menos de lo pedido, pero entero."""
    while block:
        written = os.write(descriptor, block)
        if written <= 0:
            raise OSError(errno.EIO, "el sistema no escribe nada", str(path))
        block = block[written:]


def _writeback() -> Callable[[int, int, int], None]:
    """Una función que pide al núcleo empezar ya a escribir un tramo (sync_file_range).

    Sin ella el disco espera ocioso al fsync mientras se resume. También es una sugerencia.
    """
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is None:
        return lambda descriptor, start, length: None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def announce(descriptor: int, start: int, length: int) -> None:
        function(descriptor, start, length, _SYNC_FILE_RANGE_WRITE)

    return announce
