"""El tokenizador entrenado con unos textos frente a los de otros modelos, en textos no vistos.

    python -m tests.benchmarks.corpus_tokenizers TRAIN.jsonl.gz VAL.jsonl.gz [OTRO.json…]

Los textos llevan `text` y, si lo hay, `genre`. Los otros son `tokenizer.json` o `tekken.json`.
"""

import argparse
import gzip
import hashlib
import json
import sys
import tempfile
from pathlib import Path

from enlace.config.load import load_config
from enlace.data.corpus import SPLITS, CorpusWriter, corpus_file
from enlace.data.foreign import compare_tokenizers
from enlace.data.vocabulary import build_tokenizer
from enlace.reports.tokenizer import comparison_markdown
from tests.benchmarks.corpus_peers import RUN


def main() -> None:
    """Entrena, compara y escribe las dos tablas."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("val", type=Path)
    parser.add_argument("others", nargs="*", type=Path)
    options = parser.parse_args()
    config = load_config(RUN)
    with tempfile.TemporaryDirectory() as folder:
        corpus, tokenizer = Path(folder) / "corpus", Path(folder) / "tokenizer"
        corpus.mkdir()
        for split, texts in zip(SPLITS, (options.train, options.val), strict=True):
            _write(texts, corpus_file(corpus, split))
        build_tokenizer(corpus, tokenizer, config.data, config.model.vocab_size)
        rows = compare_tokenizers(corpus, tokenizer, options.others)
    sys.stdout.write(comparison_markdown(rows))


def _write(texts: Path, path: Path) -> None:
    with CorpusWriter(path) as writer, gzip.open(texts, "rt", encoding="utf-8") as lines:
        for line in lines:
            read = json.loads(line)
            record = {
                "id": hashlib.sha256(read["text"].encode("utf-8")).hexdigest()[:32],
                "text": read["text"],
                "source": texts.name,
                "genre": read.get("genre", ""),
            }
            writer.write(json.dumps(record, ensure_ascii=False)[:-1].encode("utf-8"), 1)


if __name__ == "__main__":
    main()
