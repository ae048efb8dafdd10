"""Los documentos de una carpeta, leídos y entendidos en un solo proceso."""

from collections.abc import Iterator
from pathlib import Path

from enlace.config.schema import DataConfig
from enlace.data.documents import Document, Rejection
from enlace.data.readers import RawRecord, iterate_records, parse_record

Item = Document | Rejection


def iterate_documents(source_dir: Path, data: DataConfig) -> Iterator[Item]:
    """Recorre los documentos de `source_dir` en orden estable, y lo que no se ha podido leer.

    Raises:
        DataError: lo que dicen `iterate_records` y `parse_record`.
    """
    for item in iterate_records(source_dir, data):
        if isinstance(item, RawRecord):
            yield from parse_record(item, data)
        else:
            yield item
