"""Cuánta memoria gasta cada paso del texto a los shards, con corpus de varios tamaños.

    python -m tests.benchmarks.corpus_memory 20 80 [--workers 2] [--train-megabytes 10]

El texto es inventado y todo distinto: palabras de la muestra en orden al azar y otras hechas de
sílabas, para que el vocabulario crezca con el corpus como crece el de verdad. Cada paso corre en un
proceso nuevo, y se mide la mayor suma de memoria suya y de sus hijos: la residente y la anónima,
que deja fuera los ficheros proyectados.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from enlace.config.load import load_config
from enlace.config.schema import Config
from tests.benchmarks.corpus_throughput import Peak

ROOT = Path(__file__).parents[2]
RUN = ROOT / "configs/runs/pretrain-2060.yaml"
STEPS = ("corpus", "tokenizer", "shards")
_MEGABYTE = 1_000_000
_SYLLABLES = re.findall("..", "bacadafagalamanaparasatavetrebliñegúsonarelucí")
_INVENTED = 0.03
_WORDS_PER_SENTENCE, _SENTENCES_PER_PARAGRAPH, _PARAGRAPHS = 14, 6, 8


class Measure(NamedTuple):
    """Memoria máxima de un paso, en bytes: residente y anónima."""

    rss: int
    anonymous: int


def main() -> None:
    """Mide cada tamaño y escribe la tabla."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("megabytes", nargs="+", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--train-megabytes", type=float, default=10.0)
    options = parser.parse_args()
    header = "| MB de texto | " + " | ".join(f"{step}: RSS y anónima, MB" for step in STEPS) + " |"
    sys.stdout.write(header + "\n|" + "--:|" * (len(STEPS) + 1) + "\n")
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            measures = measure(
                Path(folder), megabytes, options.workers, options.train_megabytes
            ).values()
        cells = [f"{m.rss / _MEGABYTE:.0f} y {m.anonymous / _MEGABYTE:.0f}" for m in measures]
        sys.stdout.write(f"| {megabytes} | " + " | ".join(cells) + " |\n")
        sys.stdout.flush()


def measure(work: Path, megabytes: int, workers: int, train_megabytes: float) -> dict[str, Measure]:
    """Inventa un corpus en `work` y mide cada paso de `STEPS`."""
    (work / "raw").mkdir()
    write_texts(work / "raw/texts.jsonl", megabytes * _MEGABYTE)
    return {step: _run(step, work, workers, train_megabytes) for step in STEPS}


def write_texts(path: Path, size: int) -> None:
    """Documentos inventados, siempre los mismos, hasta `size` bytes."""
    rng = random.Random(size)
    sample = "".join(p.read_text("utf-8") for p in sorted((ROOT / "data/sample").rglob("*.txt")))
    words = re.findall(r"\w+", sample)
    written = 0
    with path.open("w", encoding="utf-8") as stream:
        while written < size:
            text = "\n\n".join(_paragraph(rng, words) for _ in range(_PARAGRAPHS))
            stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            written += len(text.encode("utf-8"))


def _paragraph(rng: random.Random, words: list[str]) -> str:
    sentences = []
    for _ in range(_SENTENCES_PER_PARAGRAPH):
        chosen = rng.choices(words, k=_WORDS_PER_SENTENCE)
        for place in range(_WORDS_PER_SENTENCE):
            if rng.random() < _INVENTED:
                chosen[place] = "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4)))
        sentences.append(" ".join(chosen).lower().capitalize() + ".")
    return " ".join(sentences)


def _run(step: str, work: Path, workers: int, train_megabytes: float) -> Measure:
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, step, str(work), str(workers), str(train_megabytes)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    peak = Peak(process.pid)
    status = process.wait()
    measured = Measure(*peak.stop())
    if status:
        raise RuntimeError(f"el paso {step} ha fallado")
    return measured


_CHILD = "import sys; from tests.benchmarks.corpus_memory import run_step; run_step(*sys.argv[1:])"


def run_step(step: str, work: str, workers: str, train_megabytes: str) -> None:
    """Un paso, en este proceso."""
    from enlace.data.preparation.build import build_corpus
    from enlace.data.sharding import build_shards, build_tokenizer

    folder = Path(work)
    config = _config(int(workers), float(train_megabytes))
    data, vocab_size = config.data, config.model.vocab_size
    corpus, tokenizer = folder / "corpus", folder / "tokenizer"
    if step == "corpus":
        build_corpus(folder / "raw", corpus, data)
    elif step == "tokenizer":
        build_tokenizer(corpus, tokenizer, data, vocab_size)
    else:
        build_shards(corpus, tokenizer, folder / "shards", data, vocab_size)


def _config(workers: int, train_megabytes: float) -> Config:
    config = load_config(RUN)
    tokenizer = config.data.tokenizer.model_copy(update={"train_megabytes": train_megabytes})
    changes = {"workers": workers, "tokenizer": tokenizer, "include": ("**/*",)}
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


if __name__ == "__main__":
    main()
