"""El trabajo de un proceso: de unos registros crudos a documentos limpios, firmados y contados."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.schema import DataConfig
from enlace.data.documents import Document, Rejection
from enlace.data.duplicates.shingles import Hashes, word_hashes
from enlace.data.duplicates.signatures import Signed, sign
from enlace.data.identity import document_id
from enlace.data.preparation.contamination import Hit, Searcher
from enlace.data.preparation.tallies import Tallies
from enlace.data.readers.parse import parse_record
from enlace.data.readers.records import RawRecord
from enlace.data.rules.events import MAX_EXAMPLE_CHARS, Event, size
from enlace.data.rules.table import RuleTable

_BATCH_BYTES = 1 << 19
_BATCH_RECORDS = 512

Labels = tuple[str, str, str]


class Settings(NamedTuple):
    """Lo que un proceso necesita: la configuración y la carpeta de las tablas de evaluación."""

    data: DataConfig
    evaluation: Path | None


class Found(NamedTuple):
    """Un documento que contiene un texto de evaluación."""

    hit: Hit
    source: str
    dropped: bool


class Batch(NamedTuple):
    """N documentos listos para el disco y las cuentas de los que se quedaron por el camino.

    `lines` son las N líneas JSON sin la llave final (quien escribe puede añadir campos); `ids`
    (N, 2) uint64 son las dos mitades de cada id; `sizes` y `characters` (N,), lo que mide el texto;
    `ranks` (N,), el puesto de la fuente; `labels`, origen, género y licencia.
    """

    lines: bytes
    ids: Hashes
    sizes: npt.NDArray[np.uint64]
    characters: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.uint16]
    labels: list[Labels]
    signed: Signed
    tallies: Tallies
    found: list[Found]


def batches_of_records(
    items: Iterable[RawRecord | Rejection],
) -> Iterator[list[RawRecord | Rejection]]:
    """Agrupa registros en lotes de medio mebibyte (o de uno solo mayor), siempre los mismos."""
    batch: list[RawRecord | Rejection] = []
    held = 0
    for item in items:
        weight = 0 if isinstance(item, Rejection) else payload_size(item.payload)
        if batch and (held + weight > _BATCH_BYTES or len(batch) == _BATCH_RECORDS):
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += weight
    if batch:
        yield batch


def payload_size(payload: bytes | dict[str, Any]) -> int:
    """Lo que ocupa un registro, en bytes o en caracteres: basta para repartir el trabajo."""
    if isinstance(payload, bytes):
        return len(payload)
    return sum(len(value) for value in payload.values() if isinstance(value, str))


def preparer(settings: Settings) -> Callable[[list[RawRecord | Rejection]], Batch]:
    """El trabajador que limpia lotes con esa configuración."""
    return _Preparer(settings).prepare


class _Preparer:
    def __init__(self, settings: Settings) -> None:
        self._data = settings.data
        self._rules = RuleTable(settings.data)
        rule = settings.data.contamination
        self._remove = rule.action == "remove"
        self._searcher = (
            Searcher(settings.evaluation, rule.ngram, rule.min_overlap)
            if settings.evaluation is not None
            else None
        )

    def prepare(self, items: list[RawRecord | Rejection]) -> Batch:
        tallies, found = Tallies(), list[Found]()
        documents: list[tuple[Document, int]] = []
        words: list[Hashes] = []
        for item in items:
            parsed = [item] if isinstance(item, Rejection) else parse_record(item, self._data)
            for each in parsed:
                if isinstance(each, Rejection):
                    tallies.reject(each)
                    continue
                document = self._clean(each, tallies)
                if document is None:
                    continue
                hashes = word_hashes(document.text)
                if self._evaluates(document, hashes, tallies, found):
                    continue
                assert isinstance(item, RawRecord)
                documents.append((document, self._rank(item.origin)))
                words.append(hashes)
        return self._pack(documents, words, tallies, found)

    def _clean(self, document: Document, tallies: Tallies) -> Document | None:
        tallies.read(document)
        if document.damage is not None:
            lost, detail = document.damage
            example = f"{document.source}: {detail}"[:MAX_EXAMPLE_CHARS]
            event = Event("bad_bytes", "changed", lost, example)
            tallies.happened(event, document.origin, document.genre)
        cleaned = self._rules.clean(document)
        for event in cleaned.events:
            tallies.happened(event, document.origin, document.genre)
        tallies.heard(cleaned.languages)
        return cleaned.document

    def _evaluates(
        self, document: Document, words: Hashes, tallies: Tallies, found: list[Found]
    ) -> bool:
        """Apunta los textos de evaluación que contiene; si eso lo deja fuera, también se cuenta."""
        hits = self._searcher.search(words) if self._searcher else []
        found += [Found(hit, document.source, self._remove) for hit in hits]
        if not (hits and self._remove):
            return False
        example = f"{document.source}: contiene {len(hits)} textos de evaluación"
        event = Event("contamination", "dropped", size(document.text), example[:MAX_EXAMPLE_CHARS])
        tallies.happened(event, document.origin, document.genre)
        return True

    def _rank(self, origin: int) -> int:
        return origin if origin >= 0 else len(self._data.sources)

    def _pack(
        self,
        documents: list[tuple[Document, int]],
        words: list[Hashes],
        tallies: Tallies,
        found: list[Found],
    ) -> Batch:
        identifiers = [document_id(document) for document, _ in documents]
        halves = [(int(each[:16], 16), int(each[16:], 16)) for each in identifiers]
        return Batch(
            b"".join(
                _line(identifier, document)
                for identifier, (document, _) in zip(identifiers, documents, strict=True)
            ),
            np.array(halves, np.uint64).reshape(-1, 2),
            np.array([size(document.text) for document, _ in documents], np.uint64),
            np.array([len(document.text) for document, _ in documents], np.uint64),
            np.array([rank for _, rank in documents], np.uint16),
            [(document.origin, document.genre, document.license) for document, _ in documents],
            sign(words, self._data.dedup),
            tallies,
            found,
        )


def _line(identifier: str, document: Document) -> bytes:
    record: dict[str, Any] = {"id": identifier, "text": document.text, "source": document.source}
    if document.turns:
        record["turns"] = [turn._asdict() for turn in document.turns]
    for field in ("origin", "genre", "license"):
        if value := getattr(document, field):
            record[field] = value
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return line[:-1].encode("utf-8") + b"\n"
