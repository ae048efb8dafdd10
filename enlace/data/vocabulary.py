"""La etapa del tokenizador: elige la muestra, entrena, mide y guarda."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from enlace.config.schema import DataConfig
from enlace.data.sampling import Group, SampledText, sample_texts
from enlace.data.tokenizer import (
    ByteTokenizer,
    TextTokenizer,
    Tokenizer,
    load_tokenizer,
    save_tokenizer,
    train_bpe,
)
from enlace.errors import DataError
from enlace.files import atomic_dir, remove_temporaries, write_json

REPORT_FILE = "report.json"
TOKENIZER_REPORT_VERSION = 2
_MEGABYTE = 1_000_000
MEASURED_BYTES = 4 * _MEGABYTE
"""Lo que se toma de validación para medir un tokenizador."""
_WORD = re.compile(r"\w+")
# Palabras corrientes, largas, con tildes, con pronombres pegados y nombres: se ve cómo las parte.
_EXAMPLES = (
    "casa", "años", "canción", "también", "ciudad", "gobierno", "corazón", "caminábamos",
    "dígaselo", "averiguáis", "pingüino", "ñandú", "desarrollo", "electricidad",
    "descubrimiento", "internacionalización", "Extremadura", "Íñigo", "1936", "¿Quién",
)  # fmt: skip


def build_tokenizer(
    corpus_dir: Path, tokenizer_dir: Path, data: DataConfig, vocab_size: int
) -> dict[str, Any]:
    """Entrena (o, con bytes, declara) el tokenizador en `tokenizer_dir` y devuelve su informe.

    El informe mide sobre una muestra de validación, con todos los orígenes y géneros: bytes por
    token y tokens por palabra.

    Raises:
        DataError: falta el corpus, o el vocabulario no vale para el tipo de tokenizador.
    """
    remove_temporaries(tokenizer_dir.parent, tokenizer_dir.name)
    tokenizer: TextTokenizer | ByteTokenizer
    counter = _Counter()
    if data.tokenizer.kind == "byte":
        tokenizer = ByteTokenizer()
        if vocab_size != tokenizer.vocab_size:
            raise DataError(
                f"model.vocab_size={vocab_size} con data.tokenizer.kind=byte; los bytes necesitan "
                f"exactamente {tokenizer.vocab_size}"
            )
    else:
        budget = max(1, round(data.tokenizer.train_megabytes * _MEGABYTE))
        texts = counter.count(sample_texts(corpus_dir, "train", budget))
        tokenizer = TextTokenizer(train_bpe(texts, vocab_size, data.tokenizer.min_frequency))
    report = _report(tokenizer, corpus_dir, vocab_size, counter)
    with atomic_dir(tokenizer_dir) as folder:
        save_tokenizer(tokenizer, folder)
        write_json(folder / REPORT_FILE, report)
    return report


def measure_tokenizer(corpus_dir: Path, tokenizer_dir: Path, vocab_size: int) -> dict[str, Any]:
    """Mide en el corpus un tokenizador que ya estaba hecho, y deja el informe a su lado.

    Raises:
        DataError: falta el corpus o el tokenizador.
    """
    report = _report(load_tokenizer(tokenizer_dir), corpus_dir, vocab_size, _Counter())
    write_json(tokenizer_dir / REPORT_FILE, report)
    return report


def _report(
    tokenizer: Tokenizer, corpus_dir: Path, vocab_size: int, counter: "_Counter"
) -> dict[str, Any]:
    return {
        "version": TOKENIZER_REPORT_VERSION,
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "model_vocab_size": vocab_size,
        "fingerprint": tokenizer.fingerprint,
        "trained_bytes": sum(counter.bytes.values()),
        "sample": counter.rows(),
        **measure(tokenizer, sample_texts(corpus_dir, "val", MEASURED_BYTES)),
        "examples": [split_word(tokenizer, word) for word in _EXAMPLES],
        "warnings": _warnings(tokenizer, vocab_size),
    }


class Encodes(Protocol):
    """Lo que hace falta de un tokenizador para medirlo."""

    def encode(self, text: str) -> list[int]:
        """Los ids de `text`."""


def measure(tokenizer: Encodes, texts: Iterable[SampledText]) -> dict[str, Any]:
    """Bytes por token y tokens por palabra: de todo («validation»), por origen y por género."""
    totals: dict[Group, Counter[str]] = {}
    for text, group in texts:
        counts = totals.setdefault(group, Counter())
        counts["bytes"] += len(text.encode("utf-8"))
        counts["tokens"] += len(tokenizer.encode(text))
        counts["words"] += len(_WORD.findall(text))
    report: dict[str, Any] = {"validation": _ratios(sum(totals.values(), Counter()))}
    for place, name in enumerate(("origins", "genres")):
        groups: dict[str, Counter[str]] = {}
        for group, counts in totals.items():
            groups.setdefault(group[place], Counter()).update(counts)
        report[name] = [{"name": key} | _ratios(groups[key]) for key in sorted(groups)]
    return report


def split_word(tokenizer: Tokenizer, word: str) -> dict[str, Any]:
    """Cómo queda una palabra tras un espacio; un trozo de carácter, por su id («‹180›»)."""
    pieces = []
    for identifier in tokenizer.encode(f" {word}"):
        piece = tokenizer.decode([identifier])
        pieces.append(piece if "\ufffd" not in piece else f"‹{identifier}›")
    return {"word": word, "pieces": pieces}


class _Counter:
    """Cuenta los bytes de cada grupo según los consume el entrenador."""

    def __init__(self) -> None:
        self.bytes: Counter[Group] = Counter()

    def count(self, texts: Iterable[SampledText]) -> Iterator[str]:
        for text, group in texts:
            self.bytes[group] += len(text.encode("utf-8"))
            yield text

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"origin": group[0], "genre": group[1], "bytes": self.bytes[group]}
            for group in sorted(self.bytes)
        ]


def _ratios(counts: "Counter[str]") -> dict[str, float | int]:
    size, tokens, words = counts["bytes"], counts["tokens"], counts["words"]
    return {
        "bytes": size,
        "tokens": tokens,
        "words": words,
        "bytes_per_token": round(size / max(1, tokens), 4),
        "tokens_per_word": round(tokens / max(1, words), 4),
    }


def _warnings(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    if tokenizer.vocab_size == vocab_size:
        return []
    return [
        f"el corpus solo da para {tokenizer.vocab_size} tokens de los {vocab_size} de "
        f"model.vocab_size: las {vocab_size - tokenizer.vocab_size} filas que sobran no se usarán; "
        "añade texto, baja data.tokenizer.min_frequency o reduce model.vocab_size"
    ]
