"""Lectores: de una carpeta a documentos y rechazos, sin limpiar todavía.

Un `.txt` es un documento; cada línea de un `.jsonl`, otro. Los dos pueden venir en `.gz` o `.zst`.
La memoria no crece con la carpeta: como mucho hay en ella un documento. Para otro formato basta
una función más en `_READERS`.

Nada se pierde en silencio: lo que no entra sale como `Rejection` con su sitio exacto, y un fichero
que no se puede leer entero detiene el trabajo.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from enlace.data.conversations import read_turns
from enlace.data.documents import Document, Rejection, conversation
from enlace.data.selection import select_files
from enlace.errors import DataError

_BLOCK = 1 << 18
_BOM = b"\xef\xbb\xbf"
_COMPRESSIONS = ("", ".gz", ".zst")


class ReadOptions(NamedTuple):
    """Lo que los lectores necesitan de `DataConfig`."""

    include: tuple[str, ...]
    format: str
    text_column: str
    on_bad_bytes: str


Item = Document | Rejection
_Reader = Callable[[Path, str, ReadOptions], Iterator[Item]]


def extensions(format: str) -> tuple[str, ...]:  # noqa: A002 - es el nombre de la clave
    """Las extensiones que se leen con `data.format` igual a `format`."""
    kinds = (".jsonl",) if format == "chat" else tuple(_READERS)
    return tuple(kind + compression for kind in kinds for compression in _COMPRESSIONS)


def iterate_documents(source_dir: Path, options: ReadOptions) -> Iterator[Item]:
    """Recorre los documentos de `source_dir` en orden estable, y lo que no se ha podido leer.

    Raises:
        DataError: nada que leer, un fichero dañado o ilegible, un jsonl del que no sirve ningún
            registro, o bytes que no son UTF-8 con `on_bad_bytes` = fail.
    """
    selection = select_files(source_dir, options.include, extensions(options.format))
    yield from selection.refused
    for name in selection.files:
        stem = name.lower().removesuffix(".gz").removesuffix(".zst")
        reader = _READERS[Path(stem).suffix]
        for item in reader(source_dir / name, name, options):
            if isinstance(item, Rejection) and item.rule == "bad_bytes":
                _apply_policy(item, options.on_bad_bytes)
            yield item


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
                        while block := unzipped.read(_BLOCK):
                            yield block
                case ".zst":
                    yield from _zstd_blocks(stream)
                case _:
                    while block := stream.read(_BLOCK):
                        yield block
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise DataError(
            f"{path} está dañado o cortado ({error}); vuelve a copiarlo o a descargarlo"
        ) from error
    except OSError as error:
        raise DataError(f"no se puede leer {path}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Las líneas de `path` como (número desde 1, desplazamiento en bytes, contenido sin el salto).

    El desplazamiento es sobre el contenido descomprimido.
    """
    number, offset = 1, 0
    pending: list[bytes] = []  # trozos de una línea a medias: unirlos una sola vez es lineal
    for block in read_blocks(path):
        first, *others = block.split(b"\n")
        pending.append(first)
        for following in others:
            line = b"".join(pending)
            yield number, offset, line
            number += 1
            offset += len(line) + 1
            pending = [following]
    if last := b"".join(pending):
        yield number, offset, last


def _zstd_blocks(stream: Any) -> Iterator[bytes]:
    # `stream_reader` acaba sin decir nada cuando el fichero está cortado; `eof` sí lo distingue.
    decompressor = None
    while block := stream.read(_BLOCK):
        while block:
            decompressor = decompressor or zstandard.ZstdDecompressor().decompressobj()
            yield decompressor.decompress(block)
            if not decompressor.eof:
                break
            block, decompressor = decompressor.unused_data, None
    if decompressor is not None:
        raise EOFError("falta el final")


def _read_txt(path: Path, name: str, _: ReadOptions) -> Iterator[Item]:
    yield _decode(b"".join(read_blocks(path)), name, 0)


def _read_jsonl(path: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    usable, first_problem = 0, None
    for number, offset, line in read_lines(path):
        content = line.removeprefix(_BOM) if number == 1 else line
        if not content.strip():
            continue
        start = offset + len(line) - len(content)
        item = _read_record(content, f"{name}:{number}", start, options)
        if isinstance(item, Rejection):
            first_problem = first_problem or item
        else:
            usable += 1
        yield item
    if not usable and first_problem is None:
        yield Rejection("empty", name, "no tiene ningún registro", 0)
    if first_problem and not usable and first_problem.rule == "bad_record":
        raise DataError(
            f"ningún registro de {path} sirve; el primer problema está en {first_problem.source}: "
            f"{first_problem.detail}"
        )


def _read_record(line: bytes, where: str, offset: int, options: ReadOptions) -> Item:
    decoded = _decode(line, where, offset)
    if isinstance(decoded, Rejection):
        return decoded

    def reject(detail: str, rule: str = "bad_record") -> Rejection:
        return Rejection(rule, where, detail, len(line))

    try:
        record = json.loads(decoded.text)
    except (ValueError, RecursionError) as error:  # también enteros de miles de cifras
        return reject(f"JSON inválido: {error}")
    if not isinstance(record, dict):
        return reject("la línea no es un objeto JSON")
    result = _turns(record) if options.format == "chat" else _text(record, options.text_column)
    if isinstance(result, str):
        return reject(result)
    document = result._replace(source=where)
    if problem := _surrogate(document.text):
        return reject(problem, "bad_bytes")
    return document


def _text(record: dict[str, Any], column: str) -> Document | str:
    """El documento de un registro, o por qué no lo es."""
    value = record.get(column)
    if isinstance(value, str):
        return Document(value, "")
    if column in record:
        return f"el campo «{column}» no es texto"
    fields = ", ".join(list(record)[:8]) or "ninguno"
    return f"falta el campo «{column}» (tiene {fields}); revisa data.text_column"


def _turns(record: dict[str, Any]) -> Document | str:
    """La conversación de un registro, o por qué no lo es."""
    turns = read_turns(record)
    return turns if isinstance(turns, str) else conversation(turns, "")


def _decode(content: bytes, where: str, offset: int) -> Item:
    try:
        return Document(content.decode("utf-8"), where)
    except UnicodeDecodeError as error:
        byte = content[error.start]
        detail = f"no es UTF-8: byte 0x{byte:02X} en la posición {offset + error.start}"
        return Rejection("bad_bytes", where, detail, len(content))


def _surrogate(text: str) -> str | None:
    # JSON admite "\ud800" suelto, que ningún UTF-8 puede guardar.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"sustituto UTF-16 suelto en el carácter {error.start}"
    return None


def _apply_policy(rejection: Rejection, on_bad_bytes: str) -> None:
    if on_bad_bytes == "fail":
        raise DataError(
            f"{rejection.source}: {rejection.detail}; conviértelo a UTF-8 o pon "
            "data.on_bad_bytes: skip"
        )


_READERS: dict[str, _Reader] = {".txt": _read_txt, ".jsonl": _read_jsonl}
