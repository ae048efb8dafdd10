"""Qué gana la pérdida de validación con la máscara de documentos, en un modelo pequeño.

    python -m tests.benchmarks.document_mask prepare CARPETA
    python -m tests.benchmarks.document_mask train CARPETA --mask block --seed 1 [--lr 0.008]

La primera orden reparte y codifica uno de cada cuatro documentos de `../shared/data/es_mini`. La
segunda entrena con Muon, mide la misma validación de dos maneras, con máscara y sin ella, y escribe
una línea de JSON. Las dos variantes ven los mismos lotes con la misma semilla.
"""

import argparse
import gzip
import json
import resource
import sys
from itertools import islice
from pathlib import Path

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.data.streams import open_stream, validation_batches
from enlace.evaluation.loss import evaluate_loss
from enlace.train.trainer import build_training, train_step
from tests.data.builders import bpe, prepare
from tests.support import make_config

_ES_MINI = Path(__file__).parents[3] / "shared" / "data" / "es_mini"
_STRIDE = 4
_BATCH = 4
_RECIPE = {
    "model.n_layer": 4,
    "model.n_head": 4,
    "model.n_kv_head": 2,
    "model.d_model": 128,
    "model.seq_len": 512,
    "train.tokens_per_step": 512 * _BATCH,
    "train.optimizer": "muon",
    "train.warmup": 0.1,
    "train.decay": 0.3,
    "train.spike_window": 0,
    "train.max_spikes": 0,
    "hardware.micro_batch": _BATCH,
    "hardware.loss_chunk_rows": 512,
}


def _config(steps: int, seed: int, mask: str, lr: float) -> Config:
    changes = {"train.steps": steps, "train.seed": seed, "data.document_mask": mask}
    return make_config(bpe(4096) | _RECIPE | changes | {"train.lr": lr})


def _prepare(folder: Path) -> None:
    with gzip.open(_ES_MINI / "train.jsonl.gz") as lines:
        train = b"".join(islice(lines, 0, None, _STRIDE))
    changes = bpe(4096) | {"data.include": ["*.jsonl"], "data.val_fraction": 0.1}
    changes |= {"data.tokenizer.train_megabytes": 4.0, "data.shard_tokens": 1 << 22}
    prepare(folder, {"textos.jsonl": train}, changes)


def _train(folder: Path, steps: int, seed: int, mask: str, lr: float) -> None:
    config = _config(steps, seed, mask, lr)
    backend = open_device(config.hardware)
    shards, model = folder / "shards", config.model
    sizes = (model.seq_len, config.sequences_per_step, seed, model.vocab_size)
    stream = open_stream(shards, "train", *sizes)
    training = build_training(config, backend)
    last = [train_step(training, stream.batch(step), step).loss for step in range(steps)][-20:]
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    result = {"mask": mask, "seed": seed, "steps": steps, "cpu_seconds": round(seconds, 1)}
    result |= {"parameters": training.model.num_parameters(), "train_loss": sum(last) / len(last)}
    for way in ("none", "block"):
        training.model.document_mask = way
        batches = validation_batches(shards, "val", model.seq_len, _BATCH, 0, model.vocab_size)
        figures = evaluate_loss(training.model, batches, backend)
        result |= {f"val_{way}": figures.loss, "val_tokens": figures.tokens}
    sys.stdout.write(json.dumps(result) + "\n")


def main() -> None:
    """Prepara los datos o entrena una variante."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("prepare", "train"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mask", choices=("none", "block"), default="none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=0.008)
    options = parser.parse_args()
    if options.action == "prepare":
        _prepare(options.folder)
    else:
        _train(options.folder, options.steps, options.seed, options.mask, options.lr)


if __name__ == "__main__":
    main()
