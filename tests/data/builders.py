"""Textos pequeños y preparaciones completas para las pruebas de datos."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.schema import Config, DataConfig
from enlace.data.documents import Document, Rejection
from enlace.data.preparation.build import build_corpus
from enlace.data.readers import iterate_records, parse_record
from enlace.data.sharding import build_shards
from enlace.data.vocabulary import build_tokenizer
from tests.support import make_config

_SUBJECTS = ("la abuela", "el herrero", "una gaviota", "mi vecina", "el maestro", "la niña")
_VERBS = ("miraba", "cosía", "llevaba", "perdió", "encontró", "contaba", "pintó", "escondía")
_OBJECTS = ("el río", "tres naranjas", "la lámpara", "un pañuelo", "su paraguas", "el camión")
_ENDINGS = ("al amanecer", "sin decir nada", "en la cigüeña vieja", "¡qué más da!", "—dijo Íñigo—")

Prose = str | bytes


class Prepared(NamedTuple):
    config: Config
    source: Path
    corpus: Path
    tokenizer: Path
    shards: Path


def sentences(count: int, seed: int) -> str:
    """Prosa inventada y repetible, de vocabulario corto."""
    rng = random.Random(seed)
    parts = (_SUBJECTS, _VERBS, _OBJECTS, _ENDINGS)
    lines = [" ".join(rng.choice(part) for part in parts) for _ in range(count)]
    return ". ".join(line[0].upper() + line[1:] for line in lines) + "."


def stories(count: int, seed: int = 0, length: int = 12) -> dict[str, Prose]:
    """`count` ficheros de texto distintos."""
    return {f"cuento_{n:03d}.txt": sentences(length, seed * 10_000 + n) for n in range(count)}


def conversations(count: int) -> str:
    """Un jsonl de conversaciones distintas."""
    records = []
    for number in range(count):
        messages = [
            {"role": "system", "content": "Responde en español."},
            {"role": "user", "content": f"¿Qué pasó el día {number}? {sentences(2, number)}"},
            {"role": "assistant", "content": sentences(3, 5000 + number)},
        ]
        records.append(json.dumps({"messages": messages}, ensure_ascii=False))
    return "\n".join(records) + "\n"


def write_tree(folder: Path, files: dict[str, Prose]) -> Path:
    """Crea los ficheros (texto en UTF-8 o bytes) y devuelve la carpeta."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return folder


def data_config(**changes: Any) -> DataConfig:
    """La configuración de datos que lee todo lo de la carpeta, con cambios por nombre de clave."""
    values = {"data.include": ["**/*"]} | {f"data.{key}": value for key, value in changes.items()}
    if changes.get("format") == "chat":
        values |= bpe()
    return make_config(values).data


def read_all(folder: Path, **changes: Any) -> tuple[list[Document], list[Rejection]]:
    """Los documentos y los rechazos de una carpeta."""
    data = data_config(**changes)
    items: list[Document | Rejection] = []
    for record in iterate_records(folder, data):
        items += [record] if isinstance(record, Rejection) else parse_record(record, data)
    documents = [item for item in items if isinstance(item, Document)]
    return documents, [item for item in items if isinstance(item, Rejection)]


def prepare(
    folder: Path,
    files: dict[str, Prose],
    changes: dict[str, Any] | None = None,
) -> Prepared:
    """Toda la cadena: fuente → corpus → tokenizador → shards."""
    config = make_config(changes)
    prepared = Prepared(
        config,
        write_tree(folder / "source", files),
        folder / "corpus",
        folder / "tokenizer",
        folder / "shards",
    )
    vocab_size = config.model.vocab_size
    build_corpus(prepared.source, prepared.corpus, config.data)
    build_tokenizer(prepared.corpus, prepared.tokenizer, config.data, vocab_size)
    build_shards(
        prepared.corpus,
        prepared.tokenizer,
        prepared.shards,
        config.data,
        vocab_size,
    )
    return prepared


def bpe(vocab_size: int = 400, **changes: Any) -> dict[str, Any]:
    """Cambios de configuración para un BPE pequeño."""
    return {"model.vocab_size": vocab_size, "data.tokenizer.kind": "bpe"} | changes


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """El contenido de una carpeta, fichero a fichero."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
