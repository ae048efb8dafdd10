"""La etapa del tokenizador: elige la muestra, entrena, mide y guarda."""

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enlace.config.schema import DataConfig
from enlace.data.corpus import read_corpus
from enlace.data.tokenizer import (
    ByteTokenizer,
    TextTokenizer,
    Tokenizer,
    save_tokenizer,
    train_bpe,
)
from enlace.errors import DataError
from enlace.files import atomic_dir, write_json

TOKENIZER_REPORT_VERSION = 1
_MEGABYTE = 1_000_000
# La muestra se elige por los bits 64–79 del id: los 64 primeros ya decidieron el reparto.
_BIN_DIGITS = slice(16, 20)
_BINS = 1 << 16
_MEASURED_BYTES = 4 * _MEGABYTE
_WORD = re.compile(r"\w+")


def build_tokenizer(
    corpus_dir: Path, tokenizer_dir: Path, data: DataConfig, vocab_size: int
) -> dict[str, Any]:
    """Entrena (o, con bytes, declara) el tokenizador en `tokenizer_dir` y devuelve su informe.

    El informe mide sobre la parte de validación: bytes por token y tokens por palabra.

    Raises:
        DataError: falta el corpus, o el vocabulario no vale para el tipo de tokenizador.
    """
    tokenizer: TextTokenizer | ByteTokenizer
    trained_bytes = 0
    if data.tokenizer.kind == "byte":
        tokenizer = ByteTokenizer()
        if vocab_size != tokenizer.vocab_size:
            raise DataError(
                f"model.vocab_size={vocab_size} con data.tokenizer.kind=byte; los bytes necesitan "
                f"exactamente {tokenizer.vocab_size}"
            )
    else:
        budget = max(1, round(data.tokenizer.train_megabytes * _MEGABYTE))
        counter = _Counter(sample_texts(corpus_dir, budget))
        tokenizer = TextTokenizer(train_bpe(counter, vocab_size, data.tokenizer.min_frequency))
        trained_bytes = counter.bytes
    report = {
        "version": TOKENIZER_REPORT_VERSION,
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "model_vocab_size": vocab_size,
        "fingerprint": tokenizer.fingerprint,
        "trained_bytes": trained_bytes,
        "validation": measure(tokenizer, corpus_dir),
        "warnings": _warnings(tokenizer, vocab_size),
    }
    with atomic_dir(tokenizer_dir) as folder:
        save_tokenizer(tokenizer, folder)
        write_json(folder / "report.json", report)
    return report


def sample_texts(corpus_dir: Path, budget: int) -> Iterator[str]:
    """Textos de entrenamiento hasta `budget` bytes UTF-8, elegidos por el hash de su contenido.

    Dos pasadas y memoria constante: la primera suma bytes por casilla de hash, y la segunda toma
    enteras las casillas que caben y parte de la siguiente. El último texto se corta por un
    carácter. No depende del orden de los documentos salvo en esa última casilla.
    """
    sizes = array("Q", bytes(8 * _BINS))
    for document in read_corpus(corpus_dir, "train"):
        sizes[_bin(document.id)] += len(document.text.encode("utf-8"))
    whole, boundary = 0, 0
    while boundary < _BINS and whole + sizes[boundary] <= budget:
        whole += sizes[boundary]
        boundary += 1
    left = budget - whole
    for document in read_corpus(corpus_dir, "train"):
        position = _bin(document.id)
        if position < boundary:
            yield document.text
        elif position == boundary and left:
            content = document.text.encode("utf-8")[:left]
            left -= len(content)
            yield content.decode("utf-8", errors="ignore")


def measure(tokenizer: Tokenizer, corpus_dir: Path) -> dict[str, float | int]:
    """Bytes por token y tokens por palabra en los primeros megabytes de validación."""
    size = tokens = words = 0
    for document in read_corpus(corpus_dir, "val"):
        text = document.text[: _MEASURED_BYTES - size]
        size += len(text.encode("utf-8"))
        tokens += len(tokenizer.encode(text))
        words += len(_WORD.findall(text))
        if size >= _MEASURED_BYTES:
            break
    return {
        "bytes": size,
        "tokens": tokens,
        "words": words,
        "bytes_per_token": round(size / max(1, tokens), 4),
        "tokens_per_word": round(tokens / max(1, words), 4),
    }


class _Counter:
    """Cuenta los bytes de los textos según los consume el entrenador."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts = texts
        self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.bytes += len(text.encode("utf-8"))
            yield text


def _bin(identifier: str) -> int:
    return int(identifier[_BIN_DIGITS], 16)


def _warnings(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    if tokenizer.vocab_size == vocab_size:
        return []
    return [
        f"el corpus solo da para {tokenizer.vocab_size} tokens de los {vocab_size} de "
        f"model.vocab_size: las {vocab_size - tokenizer.vocab_size} filas que sobran no se usarán; "
        "añade texto, baja data.tokenizer.min_frequency o reduce model.vocab_size"
    ]
