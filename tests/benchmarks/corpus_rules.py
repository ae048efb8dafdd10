"""Cuánto cuesta y cuánto quita cada regla de limpieza, y qué acierta la de lengua.

    python -m tests.benchmarks.corpus_rules FICHERO.jsonl.gz… [--run configs/runs/demo.yaml]
        [--foreign DIRECTORIO] [--mask]

Un proceso, segundos de CPU (`time.process_time`): lo que hagan los demás programas estorba menos
que en los de reloj. Cada regla se mide sobre el texto que le llega de la anterior. `--foreign` es
una carpeta de ficheros `*_LENGUA_*.tsv` con el texto en la última columna.
"""

import argparse
import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from enlace.config.load import load_config
from enlace.config.schema import DataConfig
from enlace.data.documents import Document
from enlace.data.rules.events import Rule, event, size
from enlace.data.rules.identify import LanguageIdentifier
from enlace.data.rules.language import language_rule
from enlace.data.rules.table import RuleTable

_LENGTHS = ((15, 30), (30, 60), (60, 120), (120, 300), (300, 10**9))
_PREFIXES = (30, 60, 10**9)
_MEGABYTE = 1_000_000


def main() -> None:
    """Lee los argumentos y escribe las tablas."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("texts", nargs="+", type=Path, help="jsonl.gz con «text» y «genre»")
    parser.add_argument("--run", type=Path, default=Path("configs/runs/demo.yaml"))
    parser.add_argument("--foreign", type=Path, help="carpeta con frases en otras lenguas")
    parser.add_argument("--mask", action="store_true", help="mide también los datos personales")
    options = parser.parse_args()
    data = load_config(options.run).data
    if options.mask:
        personal = data.rules.personal_data.model_copy(update={"action": "mask"})
        rules = data.rules.model_copy(update={"personal_data": personal})
        data = data.model_copy(update={"rules": rules})
    documents = list(_read(options.texts))
    _rules(data, documents)
    if options.foreign:
        _languages(data, documents, options.foreign)


def _read(paths: list[Path]) -> Iterator[Document]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                record = json.loads(line)
                source = f"{path.name}:{record['id']}"
                yield Document(record["text"], source, genre=record["genre"])


def _rules(data: DataConfig, documents: list[Document]) -> None:
    total = sum(size(document.text) for document in documents)
    _say(f"{len(documents)} documentos, {total / _MEGABYTE:.1f} MB")
    _say("| regla | MB/s | tocados | rechazados | % de documentos | bytes quitados |")
    _say("|---|--:|--:|--:|--:|--:|")
    everything = 0.0
    count = len(documents)
    for rule in RuleTable(data).rules:
        rule.apply(documents[0])  # la carga del modelo de lenguas no es el coste por documento
        reached = sum(size(document.text) for document in documents)
        start = time.process_time()
        verdicts = [rule.apply(document) for document in documents]
        seconds = time.process_time() - start
        everything += seconds
        events = [
            found
            for document, verdict in zip(documents, verdicts, strict=True)
            if (found := event(rule, document, verdict))
        ]
        dropped = sum(item.kind == "dropped" for item in events)
        speed = reached / seconds / _MEGABYTE
        _say(
            f"| `{rule.name}` | {speed:.1f} | {len(events) - dropped} | {dropped} | "
            f"{100 * dropped / count:.2f} | {sum(item.bytes for item in events)} |"
        )
        _by_genre(rule, documents, [verdict.rejected is not None for verdict in verdicts])
        documents = [verdict.document for verdict in verdicts if verdict.rejected is None]
    kept = 100 * len(documents) / count
    _say(f"\nToda la tabla: {total / everything / _MEGABYTE:.2f} MB/s; queda el {kept:.2f} %")


def _by_genre(rule: Rule, documents: list[Document], rejected: list[bool]) -> None:
    genres = Counter(
        document.genre for document, gone in zip(documents, rejected, strict=True) if gone
    )
    if genres:
        _say(f"<!-- {rule.name}: {dict(genres.most_common())} -->")


def _languages(data: DataConfig, documents: list[Document], folder: Path) -> None:
    start = time.process_time()
    identifier = LanguageIdentifier(data.rules.language)
    identifier.guess("hello")
    _say(f"\nCargar el modelo: {time.process_time() - start:.2f} s de CPU\n")
    _say("| lengua | 30 caracteres | 60 | frase | 2 frases | documentos de 5 frases |")
    _say("|---|--:|--:|--:|--:|--:|")
    rule = language_rule(data.rules.language)
    for path in sorted(folder.glob("*.tsv")):
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        sentences = [line.rsplit("\t", 1)[1] for line in lines]
        cells = [
            _share([identifier.guess(sentence[:cut]).foreign for sentence in sentences])
            for cut in _PREFIXES
        ]
        pairs = [" ".join(sentences[i : i + 2]) for i in range(0, len(sentences), 2)]
        cells.append(_share([identifier.guess(pair).foreign for pair in pairs]))
        fives = ["\n\n".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5)]
        cells.append(
            _share([rule.apply(Document(five, "")).rejected is not None for five in fives])
        )
        _say(f"| {path.stem} | {' | '.join(cells)} |")
    _say("\n| párrafos de los textos | cuántos | tomados por otra lengua, juzgados solos |")
    _say("|---|--:|--:|")
    paragraphs = [line for document in documents for line in document.text.split("\n")]
    for low, high in _LENGTHS:
        chosen = [line.strip() for line in paragraphs if low <= len(line.strip()) < high][::7]
        share = _share([identifier.guess(line).foreign for line in chosen])
        _say(f"| de {low} a {high} caracteres | {len(chosen)} | {share} |")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _share(hits: list[bool]) -> str:
    return f"{100 * sum(hits) / len(hits):.1f} %"


if __name__ == "__main__":
    main()
