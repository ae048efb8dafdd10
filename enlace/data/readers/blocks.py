"""Bytes de un fichero, descomprimidos, y cómo se parten: líneas y trozos de tamaño acotado.

Nada de aquí guarda más de un bloque, una línea o un trozo, mida lo que mida el fichero.
"""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from enlace.errors import DataError, fault_of

_BLOCK = 1 << 18
# Un bloque de zstd repetido son 3 bytes que dan 128 KiB: a 1 KiB de entrada, 43 MiB como mucho.
_ZSTD_INPUT = 1 << 10
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
_UNLIMITED = 1 << 62


class Line(NamedTuple):
    """Una línea sin su salto; `content` es None si pasa del límite y no se ha guardado."""

    number: int
    offset: int
    content: bytes | None
    size: int


def read_blocks(path: Path) -> Iterator[bytes]:
    """Los bytes de `path`, descomprimidos según su extensión, por bloques.

    Raises:
        DataError: no se puede abrir, o el comprimido está cortado o dañado.
    """
    try:
        with path.open("rb") as stream:
            match path.suffix.lower():
                case ".gz":
                    with gzip.GzipFile(fileobj=stream) as unzipped:
                        yield from _plain_blocks(unzipped)
                case ".bz2":
                    with bz2.BZ2File(stream) as expanded:
                        yield from _plain_blocks(expanded)
                case ".xz":
                    with lzma.LZMAFile(stream) as expanded:
                        yield from _plain_blocks(expanded)
                case ".zst":
                    yield from _zstd_blocks(stream)
                case _:
                    yield from _plain_blocks(stream)
    except (
        EOFError,
        gzip.BadGzipFile,
        lzma.LZMAError,
        zlib.error,
        zstandard.ZstdError,
    ) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if error.errno is None:  # bz2 avisa así de que el contenido no es suyo
            raise _damaged(path, error) from error
        raise DataError(f"no se puede leer {path}: {fault_of(error)}") from error


def read_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Las líneas de `path` como (número desde 1, desplazamiento en bytes, contenido sin el salto).

    El desplazamiento es sobre el contenido descomprimido.
    """
    for line in bounded_lines(read_blocks(path), _UNLIMITED):
        yield line.number, line.offset, line.content or b""


def bounded_lines(blocks: Iterable[bytes], limit: int) -> Iterator[Line]:
    """Las líneas de unos bloques; de la que pasa de `limit` bytes solo se da su tamaño."""
    number, offset, size = 1, 0, 0
    pending: list[bytes] = []  # trozos de una línea a medias: unirlos una sola vez es lineal
    for block in blocks:
        first, *others = block.split(b"\n")
        size += len(first)
        if size <= limit:
            pending.append(first)
        else:
            pending.clear()
        for following in others:
            yield Line(number, offset, b"".join(pending) if size <= limit else None, size)
            number += 1
            offset += size + 1
            size = len(following)
            pending = [following] if size <= limit else []
    if size:
        yield Line(number, offset, b"".join(pending) if size <= limit else None, size)


def cut_pieces(blocks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Parte un texto en trozos de `limit` bytes como mucho; unidos, dan el texto entero.

    El corte va detrás de la última línea en blanco que haya en la segunda mitad del trozo; si no
    la hay, de la última línea; si no, del último espacio, y si no, entre dos caracteres. Depende
    solo del contenido y de `limit`, no de cómo lleguen los bloques.
    """
    held = bytearray()
    for block in blocks:
        held += block
        while len(held) > limit:
            end = _cut_position(bytes(held[:limit]))
            yield bytes(held[:end])
            del held[:end]
    if held:
        yield bytes(held)


def _cut_position(piece: bytes) -> int:
    half = len(piece) // 2
    if blanks := [match.end() for match in _BLANK_LINE.finditer(piece, half)]:
        return blanks[-1]
    for mark in (b"\n", b" "):
        if (found := piece.rfind(mark, half)) >= 0:
            return found + 1
    end = len(piece)
    # Un carácter de UTF-8 empieza en un byte que no es de continuación (10xxxxxx).
    for start in range(end - 1, max(end - 4, 1) - 1, -1):
        if piece[start] & 0xC0 != 0x80:
            width = (
                1 if piece[start] < 0xC0 else 2 + (piece[start] >= 0xE0) + (piece[start] >= 0xF0)
            )
            return end if start + width <= end else start
    return end


def _plain_blocks(
    stream: BinaryIO | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile,
) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def _zstd_blocks(stream: BinaryIO) -> Iterator[bytes]:
    # `stream_reader` acaba sin decir nada cuando el fichero está cortado; `eof` sí lo distingue.
    decompressor = None
    while block := stream.read(_ZSTD_INPUT):
        while block:
            decompressor = decompressor or zstandard.ZstdDecompressor().decompressobj()
            if output := decompressor.decompress(block):
                yield output
            if not decompressor.eof:
                break
            block, decompressor = decompressor.unused_data, None
    if decompressor is not None:
        raise EOFError("falta el final")


def _damaged(path: Path, error: Exception) -> DataError:
    """El error de un comprimido; lo que dice la biblioteca va en inglés y no ayuda a arreglarlo."""
    changed = f"no es un {path.suffix.lower()}, o tiene bytes cambiados"
    problem = "le falta el final" if isinstance(error, EOFError) else changed
    return DataError(
        f"{path} está dañado o cortado ({problem}); vuelve a copiarlo o a descargarlo"
    )
