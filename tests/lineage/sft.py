"""De un preentrenamiento diminuto a uno de conversaciones que parte de él, con sus datos de verdad.

Como programa, es la vida del hijo que muere a mitad:

    python -m tests.lineage.sft CARPETA RUN PASO
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from enlace.config.schema import Config
from enlace.config.yaml_io import read_yaml
from enlace.data.index import verify_shards
from enlace.data.preparation.build import build_corpus
from enlace.data.sharding import build_shards
from enlace.data.streams import Batch, TokenStream, open_stream
from enlace.train.export import export_run
from enlace.train.folder import keep_tokenizer
from enlace.train.parent import find_parent, inherit_tokenizer, parent_record, resolve_parent
from tests.data.builders import bpe, conversations, prepare, stories
from tests.support import make_config
from tests.train.runs import ORIGIN, run_training

ROOT = Path(__file__).parents[2]
VOCABULARY = 400
MODEL = Path("checkpoints/model")
CHAT = Path("chat")
_BASE: dict[str, Any] = bpe(
    VOCABULARY,
    **{"train.steps": 8, "train.save_every": 4, "hardware.threads": 1, "model.seq_len": 64},
)


class MortalStream:
    """Un flujo de shards que mata al proceso en un paso."""

    def __init__(self, stream: TokenStream, kill_at: int) -> None:
        self._stream, self._kill_at = stream, kill_at
        self.fingerprint = stream.fingerprint

    def batch(self, step: int) -> Batch:
        if step == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._stream.batch(step)

    def state_dict(self, step: int) -> dict[str, Any]:
        return self._stream.state_dict(step)

    def check_state(self, state: dict[str, Any]) -> None:
        self._stream.check_state(state)


def pretrain(root: Path) -> None:
    """El padre: texto corriente y un BPE propio; queda en `checkpoints/model`."""
    prepared = prepare(root / "texto", stories(40), _BASE)
    _train(root / "runs/padre-0123456789abcdef", prepared.config, root / "texto")
    _export(root, "padre-0123456789abcdef", root / "texto", MODEL)


def prepare_chat(root: Path) -> Config:
    """El hijo: la capa `distill`, con el tokenizador del padre. Escribe su configuración."""
    layer = read_yaml(ROOT / "configs/data/distill.yaml")["data"]
    evaluation = layer["evaluation"] | {"max_new_tokens": 8}
    small = {"val_fraction": 0.1, "workers": 1, "shard_tokens": 65536, "evaluation": evaluation}
    changes = _BASE | {"train.init_from": str(MODEL), "train.lr": 1e-3, "model.dropout": 0.1}
    values = make_config(changes).model_dump(mode="json") | {"data": layer | small}
    values["run_name"] = "conversa"
    config = resolve_parent(Config.model_validate(values))
    parent = find_parent(config.train)
    assert parent is not None
    folder = root / CHAT
    (folder / "source").mkdir(parents=True)
    (folder / "source/c.jsonl").write_text(conversations(80), encoding="utf-8")
    build_corpus(folder / "source", folder / "corpus", config.data)
    inherit_tokenizer(parent, folder / "tokenizer")
    build_shards(
        folder / "corpus", folder / "tokenizer", folder / "shards", config.data, VOCABULARY
    )
    (root / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    return config


def train_chat(root: Path, run: str, kill_at: int | None = None) -> None:
    """Entrena el hijo en `runs/RUN`, o sigue; con `kill_at`, se mata en ese paso."""
    config = Config.model_validate_json((root / "config.json").read_text(encoding="utf-8"))
    _train(root / "runs" / run, config, root / CHAT, kill_at)


def deliver(root: Path, run: str) -> None:
    """Entrega el hijo en `checkpoints/model`, como DVC: en lugar del padre."""
    _export(root, run, root / CHAT, MODEL)


def _train(run: Path, config: Config, data: Path, kill_at: int | None = None) -> None:
    index = verify_shards(data / "shards")
    parent = find_parent(config.train)
    record = parent and parent_record(parent, config.train.init_state).model_dump(mode="json")
    run.mkdir(parents=True, exist_ok=True)
    keep_tokenizer(data / "tokenizer", run, index.tokenizer.fingerprint)
    stream: Any = open_stream(
        data / "shards",
        "train",
        config.model.seq_len,
        config.sequences_per_step,
        config.train.seed,
        VOCABULARY,
    )
    run_training(
        run,
        config,
        stream=stream if kill_at is None else MortalStream(stream, kill_at),  # type: ignore[arg-type]
        origin=ORIGIN
        | {"data": index.fingerprint, "tokenizer": index.tokenizer.fingerprint, "parent": record},
        evaluators=(),
        parent=parent,
    )


def _export(root: Path, run: str, data: Path, out: Path) -> None:
    export_run(root / "runs" / run, root / out, root / "checkpoints/state", data / "tokenizer")


def main() -> None:
    """La vida que muere."""
    root = Path(sys.argv[1])
    os.environ["DVC_ROOT"] = str(root)
    train_chat(root, sys.argv[2], int(sys.argv[3]))


if __name__ == "__main__":
    main()
