"""De una carpeta a registros crudos, en orden estable y sin cargar ningún fichero entero."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from enlace.config.schema import DataConfig
from enlace.data.documents import Rejection
from enlace.data.formats import extensions, format_of
from enlace.data.readers.blocks import bounded_lines, cut_pieces
from enlace.data.readers.encoding import Opened, open_text
from enlace.data.readers.parse import parse_record
from enlace.data.readers.records import Kind, RawRecord
from enlace.data.readers.table import read_rows
from enlace.data.selection import Selection, assign_sources, select_files
from enlace.errors import DataError

_MEGABYTE = 10**6
_HOPELESS = 1000
"""Registros seguidos que fallan por lo mismo, desde el principio, con los que no se lee más."""

Item = RawRecord | Rejection


class _File(NamedTuple):
    path: Path
    name: str
    origin: int
    data: DataConfig

    @property
    def limit(self) -> int:
        return round(self.data.max_record_megabytes * _MEGABYTE)

    def too_long(self, source: str, size: int) -> Rejection:
        detail = (
            f"un solo registro de {size / _MEGABYTE:.1f} MB; parte el registro o sube "
            "data.max_record_megabytes"
        )
        return Rejection("too_long", source, detail, size)


def training_files(source_dir: Path, data: DataConfig) -> Selection:
    """Los ficheros del corpus: los de `data.include` menos los textos de evaluación.

    Raises:
        DataError: lo que dice `select_files`.
    """
    excluded = data.contamination.include
    return select_files(source_dir, data.include, extensions(data.format), excluded)


def iterate_records(source_dir: Path, data: DataConfig) -> Iterator[Item]:
    """Recorre los registros de `source_dir` en orden estable, y lo que no se puede leer.

    Raises:
        DataError: nada que leer, una entrada de `data.sources` que no casa con nada, un fichero
            dañado, un jsonl o parquet del que no sirve ningún registro, o bytes ilegibles con
            `data.on_bad_bytes` = fail.
    """
    selection = training_files(source_dir, data)
    origins = assign_sources(selection, data.sources)
    yield from selection.refused
    for name, origin in zip(selection.files, origins, strict=True):
        file = _File(source_dir / name, name, origin, data)
        match format_of(name):
            case "parquet":
                yield from _hopeful(read_rows(file.path, name, origin, data, file.limit), file)
            case "jsonl":
                yield from _hopeful(_jsonl(file), file)
            case "json":
                yield from _whole(file, "json")
            case "html":
                yield from _whole(file, "html")
            case "markdown":
                yield from _pieces(file, "markdown")
            case _:
                yield from _pieces(file, "text")


def _open(file: _File) -> Opened | Rejection:
    opened = open_text(file.path, file.data.on_bad_bytes)
    if opened.encoding is not None:
        return opened
    size = sum(len(block) for block in opened.blocks)
    return Rejection("bad_bytes", file.name, opened.problem, size)


def _pieces(file: _File, kind: Kind) -> Iterator[Item]:
    opened = _open(file)
    if isinstance(opened, Rejection):
        yield opened
        return
    limit = round(file.data.max_document_megabytes * _MEGABYTE)
    offset, part = opened.offset, 0
    pieces = cut_pieces(opened.blocks, limit)
    piece = next(pieces, None)
    if piece is None:
        yield Rejection("empty", file.name, "está vacío", 0)
    while piece is not None:
        following = next(pieces, None)
        whole = part == 0 and following is None
        source = file.name if whole else f"{file.name}#{part + 1}"
        yield RawRecord(kind, piece, source, offset, file.origin, part, opened.encoding or "")
        offset += len(piece)
        part += 1
        piece = following


def _whole(file: _File, kind: Kind) -> Iterator[Item]:
    opened = _open(file)
    if isinstance(opened, Rejection):
        yield opened
        return
    held, size = bytearray(), 0
    for block in opened.blocks:
        size += len(block)
        if size <= file.limit:
            held += block
        else:
            held.clear()
    if size > file.limit:
        yield file.too_long(file.name, size)
    elif not size:
        yield Rejection("empty", file.name, "está vacío", 0)
    else:
        content, encoding = bytes(held), opened.encoding or ""
        yield RawRecord(kind, content, file.name, opened.offset, file.origin, 0, encoding)


def _jsonl(file: _File) -> Iterator[Item]:
    opened = _open(file)
    if isinstance(opened, Rejection):
        yield opened
        return
    records = 0
    for line in bounded_lines(opened.blocks, file.limit):
        if line.content is not None and not line.content.strip():
            continue
        records += 1
        source = f"{file.name}:{line.number}"
        if line.content is None:
            yield file.too_long(source, line.size)
            continue
        offset = opened.offset + line.offset
        encoding = opened.encoding or ""
        yield RawRecord("record", line.content, source, offset, file.origin, 0, encoding)
    if not records:
        yield Rejection("empty", file.name, "no tiene ningún registro", 0)


def _hopeful(items: Iterator[Item], file: _File) -> Iterator[Item]:
    """Los mismos registros, si alguno sirve.

    Con la columna equivocada no sirve ninguno y todos se quejan igual: más vale saberlo antes de
    leer el fichero entero.
    """
    first, alike = None, 0
    for item in items:
        yield item
        if isinstance(item, Rejection):
            continue
        parsed = parse_record(item, file.data)
        bad = [r for r in parsed if isinstance(r, Rejection) and r.rule == "bad_record"]
        if not bad:
            yield from items
            return
        first = first or bad[0]
        alike = alike + 1 if bad[0].detail == first.detail else 0
        if alike == _HOPELESS:
            break
    if first is not None:
        count = f"los primeros {alike} registros" if alike == _HOPELESS else "ningún registro"
        verb = "no sirven" if alike == _HOPELESS else "sirve"
        raise DataError(
            f"{count} de {file.path} {verb}; el primer problema está en {first.source}: "
            f"{first.detail}"
        )
