"""Cuántos textos en español vuelven intactos de una codificación antigua que nadie declara.

    python -m tests.benchmarks.corpus_encodings FICHERO.jsonl.gz… [--sentences 400] [--texts 250]

De los textos se toman, repartidos por igual, frases con alguna tilde y textos enteros; cada uno se
escribe en cada codificación (lo que esta no tiene se quita antes) y se da a leer, sin decir cuál
es, a cada detector. Cuenta como acierto devolver el mismo texto, se llame como se llame la
codificación. Todo depende solo de los ficheros: dos veces da las mismas cifras.
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from enlace.data.readers.guess import guess_encoding

ENCODINGS = (
    "cp1252",
    "iso8859-15",
    "mac_roman",
    "cp850",
    "utf-8",
    "utf-8-sig",
    "utf-16-le",
    "utf-16-be",
    "utf-32-le",
    "utf-32-be",
)
_SENTENCE = re.compile(r"[^.!?…\n]{30,200}[.!?…]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def main() -> None:
    """Lee los argumentos y escribe una tabla por clase de texto."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("files", nargs="+", type=Path, help="jsonl.gz con «text»")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--texts", type=int, default=250)
    options = parser.parse_args()
    texts = [text for path in options.files for text in _texts(path)]
    sentences = [found for text in texts for found in _sentences(text)]
    for title, cases in (
        ("frases", _spread(sentences, options.sentences)),
        ("textos enteros", _spread(texts, options.texts)),
    ):
        _table(title, cases)


def detectors() -> dict[str, Callable[[bytes], str | None]]:
    """Lo que propone cada uno, con su nombre; `charset-normalizer` solo si está instalado."""
    import chardet

    found: dict[str, Callable[[bytes], str | None]] = {
        "enlace": lambda content: guess_encoding(content).encoding,
        "chardet": lambda content: chardet.detect(content)["encoding"],
    }
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return found

    def normalizer(content: bytes) -> str | None:
        best = from_bytes(content).best()
        return None if best is None else best.encoding

    found["charset-normalizer"] = normalizer
    return found


def comes_back(text: str, encoding: str, detect: Callable[[bytes], str | None]) -> bool:
    """Si `text`, escrito en `encoding`, se lee igual con la codificación que dice `detect`."""
    content = text.encode(encoding, "ignore")
    guessed = detect(content)
    if guessed is None:
        return False
    try:
        read = content.decode(guessed)
    except (LookupError, UnicodeDecodeError):
        return False
    return read.removeprefix("\ufeff") == content.decode(encoding)


def _texts(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [text for line in lines if _NOT_ASCII.search(text := json.loads(line)["text"])]


def _sentences(text: str) -> list[str]:
    found = (match.group().strip() for match in _SENTENCE.finditer(text))
    return [sentence for sentence in found if _NOT_ASCII.search(sentence)]


def _spread(cases: list[str], count: int) -> list[str]:
    """`count` elementos a la misma distancia unos de otros, o todos si hay menos."""
    count = min(count, len(cases))
    return [cases[index * len(cases) // count] for index in range(count)]


def _table(title: str, cases: list[str]) -> None:
    columns = detectors()
    _say(f"\n| {len(cases)} {title} en | {' | '.join(columns)} |")
    _say("|---" + "|--:" * len(columns) + "|")
    for encoding in ENCODINGS:
        cells = [
            str(sum(comes_back(case, encoding, detect) for case in cases))
            for detect in columns.values()
        ]
        _say(f"| {encoding} | {' | '.join(cells)} |")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
