"""El corpus limpio: `{train,val}.jsonl.zst` más `report.json`, escritos enteros o nada.

Una línea por documento: `{"id", "text", "source"}` y, en las conversaciones, `"turns"`. El orden es
el de las rutas de origen, de modo que los bytes no dependen del disco ni de la máquina.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from enlace.config.schema import DataConfig
from enlace.data.clean import Cleaner
from enlace.data.documents import Document, Rejection, Turn
from enlace.data.identity import document_id, split_of
from enlace.data.readers.blocks import read_lines
from enlace.data.text import iterate_documents
from enlace.errors import DataError
from enlace.files import atomic_dir, write_json

CORPUS_VERSION = 1
SPLITS = ("train", "val")
_ZSTD_LEVEL = 3


class CorpusDocument(NamedTuple):
    """Un documento del corpus limpio. `id` son 32 dígitos hexadecimales."""

    id: str
    text: str
    source: str
    turns: tuple[Turn, ...]


def build_corpus(source_dir: Path, out_dir: Path, data: DataConfig) -> dict[str, Any]:
    """Lee, limpia, quita duplicados y reparte `source_dir` en `out_dir`; devuelve el informe.

    Raises:
        DataError: nada que leer, fichero dañado, o una de las dos partes queda vacía.
    """
    cleaner = Cleaner(data)
    read = {"documents": 0, "bytes": 0}
    with atomic_dir(out_dir) as folder:
        with ExitStack() as stack:
            writers = {
                split: stack.enter_context(_Writer(corpus_file(folder, split))) for split in SPLITS
            }
            for item in iterate_documents(source_dir, data):
                if isinstance(item, Rejection):
                    cleaner.reject(item)
                    continue
                read["documents"] += 1
                read["bytes"] += len(item.text.encode("utf-8"))
                cleaned = cleaner.clean(item)
                if cleaned is not None:
                    identifier = document_id(cleaned)
                    writers[split_of(identifier, data.val_fraction)].write(identifier, cleaned)
        splits = {split: writer.counts for split, writer in writers.items()}
        _check_not_empty(splits, cleaner, source_dir, data.val_fraction)
        report = {
            "version": CORPUS_VERSION,
            "format": data.format,
            "read": read,
            "splits": splits,
            **cleaner.report(),
        }
        write_json(folder / "report.json", report)
    return report


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
            yield CorpusDocument(record["id"], record["text"], record["source"], turns)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}:{number} no es un documento del corpus ({error!r}); vuelve a generarlo "
                "(dvc repro -f corpus)"
            ) from error


class _Writer:
    """Escribe documentos en un jsonl.zst y los cuenta."""

    def __init__(self, path: Path) -> None:
        self.counts = {"documents": 0, "characters": 0, "bytes": 0}
        self._path = path

    def __enter__(self) -> "_Writer":
        self._raw = self._path.open("wb")
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
        self._stream = compressor.stream_writer(self._raw)
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()  # cierra también el fichero

    def write(self, identifier: str, document: Document) -> None:
        record: dict[str, Any] = {
            "id": identifier,
            "text": document.text,
            "source": document.source,
        }
        if document.turns:
            record["turns"] = [turn._asdict() for turn in document.turns]
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._stream.write(line.encode("utf-8"))
        self.counts["documents"] += 1
        self.counts["characters"] += len(document.text)
        self.counts["bytes"] += len(document.text.encode("utf-8"))


def _check_not_empty(
    splits: dict[str, dict[str, int]], cleaner: Cleaner, source_dir: Path, val_fraction: float
) -> None:
    kept = sum(counts["documents"] for counts in splits.values())
    if not kept:
        dropped = {k: v["documents"] for k, v in cleaner.report()["dropped"].items()}
        reasons = ", ".join(f"{rule} {count}" for rule, count in dropped.items() if count)
        raise DataError(
            f"no queda ningún documento de {source_dir} tras la limpieza "
            f"({reasons or 'no había ninguno'}); revisa data.include y data.rules.length"
        )
    for split, counts in splits.items():
        if not counts["documents"]:
            raise DataError(
                f"la parte {split} queda vacía: {kept} documentos con "
                f"data.val_fraction={val_fraction}; añade documentos, parte los largos en varios "
                "ficheros o cambia data.val_fraction"
            )
