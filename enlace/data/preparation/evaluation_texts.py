"""Los textos de evaluación que no deben estar en el corpus, en una tabla de n-gramas en disco.

Salen de los ficheros de `data.contamination.include`: en un `.jsonl` o `.parquet`, cada cadena de
cada registro (pregunta, contexto, opciones…) es un texto; en un `.txt` o `.md`, cada párrafo. De
los que tienen menos palabras que un n-grama se busca el texto entero, y los más cortos que
`SHORTEST` palabras no se buscan: «el sol» está en cualquier parte y no delata a nadie.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.schema import DataConfig
from enlace.data.duplicates.shingles import Hashes, ngram_hashes, word_hashes
from enlace.data.formats import COMPRESSIONS, format_of
from enlace.data.readers.blocks import read_lines
from enlace.data.readers.table import every_row
from enlace.data.selection import select_files
from enlace.errors import DataError

SHORTEST = 6
"""Palabras de un texto de evaluación por debajo de las que no se busca."""

TABLES: dict[str, Any] = {
    "grams": np.uint64,
    "owners": np.int32,
    "counts": np.int32,
    "anchors": np.uint64,
    "lengths": np.int32,
    "wholes": np.uint64,
    "shorts": np.int32,
}
_SUFFIXES = (".jsonl", ".parquet", ".txt", ".md", ".markdown")
_SHOWN_CHARS = 80


class EvaluationText(NamedTuple):
    """Un texto de evaluación: dónde está y cómo empieza."""

    source: str
    start: str


class EvaluationTexts(NamedTuple):
    """Los textos que se buscan y cuántos no, por cortos; `files` son los ficheros leídos."""

    texts: tuple[EvaluationText, ...]
    too_short: int
    files: tuple[str, ...]


def index_evaluation(source_dir: Path, data: DataConfig, folder: Path) -> EvaluationTexts:
    """Lee los textos de evaluación y deja en `folder` las tablas que abre `Searcher`.

    `grams` (N,) en orden creciente y `owners` (N,): cada n-grama y el texto del que es; `counts`
    (textos,): los n-gramas distintos de cada texto; `anchors`, `lengths`, `wholes` y `shorts`
    (M,): de cada texto corto, sus primeras `SHORTEST` palabras, cuántas tiene, él entero y cuál es.

    Raises:
        DataError: ningún fichero casa, o uno no se puede leer.
    """
    rule = data.contamination
    extensions = tuple(kind + compression for kind in _SUFFIXES for compression in COMPRESSIONS)
    selection = select_files(source_dir, rule.include, extensions, key="data.contamination.include")
    if selection.refused:
        first = selection.refused[0]
        raise DataError(
            f"data.contamination.include: {first.source} no se puede leer ({first.detail}); los "
            f"textos de evaluación van en {', '.join(_SUFFIXES)}"
        )
    texts: list[EvaluationText] = []
    grams: list[Hashes] = []
    counts: list[int] = []
    shorts: list[tuple[int, int, int, int]] = []
    seen: set[bytes] = set()
    too_short = 0
    for source, text in _strings(source_dir, selection.files):
        words = word_hashes(text)
        content = words.tobytes()
        if content in seen:
            continue
        seen.add(content)
        if len(words) < SHORTEST:
            too_short += 1
            continue
        number = len(texts)
        texts.append(EvaluationText(source, " ".join(text.split())[:_SHOWN_CHARS]))
        if len(words) >= rule.ngram:
            grams.append(np.unique(ngram_hashes(words, rule.ngram)))
            counts.append(len(grams[-1]))
            continue
        anchor = int(ngram_hashes(words[:SHORTEST], SHORTEST)[0])
        shorts.append((anchor, len(words), int(ngram_hashes(words, len(words))[0]), number))
        grams.append(np.empty(0, np.uint64))
        counts.append(1)
    _save(folder, grams, counts, sorted(shorts))
    return EvaluationTexts(tuple(texts), too_short, selection.files)


def _save(
    folder: Path, grams: list[Hashes], counts: list[int], shorts: list[tuple[int, int, int, int]]
) -> None:
    joined = np.concatenate([np.empty(0, np.uint64), *grams])
    owners = np.repeat(np.arange(len(grams), dtype=np.int32), [len(each) for each in grams])
    order = np.lexsort((owners, joined))
    columns = list(zip(*shorts, strict=True)) if shorts else [(), (), (), ()]
    tables = {
        "grams": joined[order],
        "owners": owners[order],
        "counts": np.array(counts, TABLES["counts"]),
        **{
            name: np.array(column, TABLES[name])
            for name, column in zip(
                ("anchors", "lengths", "wholes", "shorts"), columns, strict=True
            )
        },
    }
    for name, table in tables.items():
        table.astype(TABLES[name]).tofile(folder / f"evaluation-{name}.bin")


def read_table(folder: Path, name: str) -> npt.NDArray[Any]:
    """Una de las tablas de `index_evaluation`."""
    return np.fromfile(folder / f"evaluation-{name}.bin", dtype=TABLES[name])


def _strings(source_dir: Path, files: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in files:
        match format_of(name):
            case "jsonl":
                yield from _record_strings(source_dir / name, name)
            case "parquet":
                yield from _row_strings(source_dir / name, name)
            case _:
                yield from _paragraphs(source_dir / name, name)


def _record_strings(path: Path, name: str) -> Iterator[tuple[str, str]]:
    for number, _, line in read_lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:  # también los bytes que no son UTF-8
            raise DataError(f"{path}:{number} no es JSON ({error}); arregla el fichero") from None
        for text in _leaves(record):
            yield f"{name}:{number}", text


def _row_strings(path: Path, name: str) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(every_row(path), start=1):
        for text in _leaves(row):
            yield f"{name}:{number}", text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)


def _paragraphs(path: Path, name: str) -> Iterator[tuple[str, str]]:
    try:
        content = b"\n".join(line for _, _, line in read_lines(path)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} no es UTF-8 ({error}); conviértelo") from None
    for number, paragraph in enumerate(re.split(r"\n\s*\n", content), start=1):
        if paragraph.strip():
            yield f"{name}#{number}", paragraph
