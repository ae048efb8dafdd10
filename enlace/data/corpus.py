"""El corpus limpio en disco: `{train,val}.jsonl.zst` y `report.json`.

Una línea por documento: `{"id", "text", "source"}` y, cuando los hay, `"turns"` (conversaciones),
`"origin"`, `"genre"`, `"license"` y `"copies"` (las veces que se ve en una época, si no es una). El
orden es el de las rutas de origen.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import zstandard

from enlace.data.documents import Turn
from enlace.data.readers.blocks import read_lines
from enlace.errors import DataError

SPLITS = ("train", "val")
_ZSTD_LEVEL = 3


class CorpusDocument(NamedTuple):
    """Un documento del corpus limpio. `id` son 32 dígitos hexadecimales.

    `copies` son las veces que el entrenamiento lo ve en una época, según el peso de su fuente.
    """

    id: str
    text: str
    source: str
    turns: tuple[Turn, ...]
    origin: str = ""
    genre: str = ""
    copies: int = 1


def corpus_file(corpus_dir: Path, split: str) -> Path:
    """La ruta de una parte del corpus."""
    return corpus_dir / f"{split}.jsonl.zst"


def read_corpus(corpus_dir: Path, split: str) -> Iterator[CorpusDocument]:
    """Recorre una parte del corpus, en su orden y sin cargarla entera.

    Raises:
        DataError: falta, está dañada o una línea no es un documento.
    """
    path = corpus_file(corpus_dir, split)
    if not path.is_file():
        raise DataError(f"falta {path}; genera el corpus (dvc repro corpus)")
    for number, _, line in read_lines(path):
        try:
            record = json.loads(line)
            turns = tuple(Turn(turn["role"], turn["content"]) for turn in record.get("turns", ()))
            yield CorpusDocument(
                record["id"],
                record["text"],
                record["source"],
                turns,
                record.get("origin", ""),
                record.get("genre", ""),
                record.get("copies", 1),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}:{number} no es un documento del corpus ({error!r}); vuelve a generarlo "
                "(dvc repro -f corpus)"
            ) from error


class CorpusWriter:
    """Escribe las líneas de una parte del corpus en su jsonl.zst."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
        self._stream = compressor.stream_writer(self._path.open("wb"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()  # cierra también el fichero

    def write(self, line: bytes, copies: int) -> None:
        """Escribe un documento: su objeto JSON sin la llave final, y cuántas veces se ve."""
        self._stream.write(line + (b"}\n" if copies == 1 else b',"copies":%d}\n' % copies))
