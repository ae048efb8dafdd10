"""Parquet: filas de las columnas que hacen falta, por grupos pequeños."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from enlace.config.schema import DataConfig
from enlace.data.conversations import CONVERSATION_FIELDS
from enlace.data.documents import Rejection
from enlace.data.readers.blocks import read_blocks
from enlace.data.readers.records import RawRecord
from enlace.errors import DataError, cause_of

_BATCH_ROWS = 64
_BUFFER = 1 << 20


def read_rows(
    path: Path, name: str, origin: int, data: DataConfig, limit: int
) -> Iterator[RawRecord | Rejection]:
    """Las filas de `path` como diccionarios, con su número desde 1.

    Un parquet comprimido por fuera se descomprime antes en un fichero temporal, porque hay que
    saltar dentro de él.

    Raises:
        DataError: el fichero está dañado o no tiene las columnas.
    """
    with _opened(path) as table:
        columns = _columns(path, table.schema_arrow.names, data)
        number = 0
        for batch in table.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
            for values in _rows(batch, limit):
                number += 1
                source = f"{name}:{number}"
                if isinstance(values, int):
                    detail = (
                        f"una sola fila de {values / 1e6:.1f} MB; pártela o sube "
                        "data.max_record_megabytes"
                    )
                    yield Rejection("too_long", source, detail, values)
                else:
                    yield RawRecord("record", values, source, number - 1, origin)
        if not number:
            yield Rejection("empty", name, "no tiene ninguna fila", 0)


def every_row(path: Path) -> Iterator[dict[str, Any]]:
    """Las filas de `path` con todas sus columnas, como diccionarios.

    Raises:
        DataError: el fichero está dañado.
    """
    with _opened(path) as table:
        for batch in table.iter_batches(batch_size=_BATCH_ROWS):
            yield from batch.to_pylist()


def check_table(path: Path) -> None:
    """Abre un parquet y lee su final, donde está su índice.

    Raises:
        DataError: no es un parquet, o está cortado.
    """
    with _opened(path):
        pass


def _columns(path: Path, names: list[str], data: DataConfig) -> list[str]:
    present = set(names)
    if data.format == "chat":
        wanted = [name for name in CONVERSATION_FIELDS if name in present]
        wanted += ["system"] if wanted and "system" in present else []
        missing = " o ".join(CONVERSATION_FIELDS)
    else:
        wanted = [_top(data.text_column, present)]
        missing = data.text_column
    if not wanted or wanted[0] not in present:
        raise DataError(
            f"{path} no tiene la columna «{missing}»; tiene {', '.join(names)}; revisa "
            "data.text_column"
        )
    extra = (_top(column, present) for column in (data.genre_column, data.license_column) if column)
    return list(dict.fromkeys([*wanted, *(column for column in extra if column in present)]))


def _top(column: str, present: set[str]) -> str:
    return column if column in present else column.partition(".")[0]


def _rows(batch: Any, limit: int) -> Iterator[dict[str, Any] | int]:
    """Las filas de un lote, o los bytes de la que pasa de `limit`, que no se convierte."""
    if batch.nbytes <= limit:
        yield from ({key: _plain(value) for key, value in row.items()} for row in batch.to_pylist())
        return
    for row in range(batch.num_rows):
        alone = batch.slice(row, 1)
        size = sum(column.nbytes for column in alone.columns)
        yield size if size > limit else next(_rows(alone, limit))


def _plain(value: Any) -> Any:
    """Los textos guardados como binario, descodificados; lo que no sea UTF-8, como está."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    return value


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """El parquet de `path`; lo que falle al leerlo, en un error que lo nombra."""
    import pyarrow
    from pyarrow import parquet

    try:
        with _seekable(path) as stream:
            yield parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:
        # Sin número es pyarrow quien habla, en inglés y de tamaños que no ayudan a arreglarlo.
        fault = isinstance(error, OSError) and error.errno is not None
        reason = f" ({cause_of(error)})" if fault else ""
        raise DataError(f"{path} no es un parquet entero{reason}; vuelve a descargarlo") from error


@contextmanager
def _seekable(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix.lower() == ".parquet":
        with path.open("rb") as stream:
            yield stream
        return
    with tempfile.TemporaryFile() as copy:
        for block in read_blocks(path):
            copy.write(block)
        copy.seek(0)
        yield copy
