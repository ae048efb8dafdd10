"""Un solo bit cambiado en lo que un entrenamiento lee se descubre antes de dar un paso.

Checkpoint, modelo del que parte, shards e índice, tokenizador y veredicto del preflight.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from enlace.config.schema import Config
from enlace.data.index import INDEX_FILE, read_index, verify_shards
from enlace.data.streams import Batch, TokenStream, open_stream
from enlace.errors import CheckpointError, DataError, PreflightError
from enlace.preflight.verdict import require_verdict, verdict_key, write_verdict
from enlace.train.artifact import CONFIG, MANIFEST, MANIFEST_DIGEST, TOKENIZER
from enlace.train.checkpoint import CHECKPOINTS, DIGEST, MODEL, OPTIMIZER, STATE
from enlace.train.export import export_run
from enlace.train.folder import keep_tokenizer
from enlace.train.parent import find_parent, resolve_parent, store
from tests.data.builders import Prepared, prepare, stories
from tests.support import make_config
from tests.train.checkpoints import flip
from tests.train.runs import ORIGIN, SHORT, run_training

FLIPS_PER_FILE = 40
MODEL_FOLDER = "modelo"
VALUES = {"train.steps": 6}


class StepTakenError(Exception):
    """Alguien ha pedido el lote de un paso."""


class Watched:
    """Un flujo de shards que avisa si se llega a dar un paso, o para como un SIGTERM."""

    def __init__(self, stream: TokenStream, last: int) -> None:
        self._stream, self._last = stream, last
        self.fingerprint = stream.fingerprint

    def batch(self, step: int) -> Batch:
        if step > self._last:
            raise StepTakenError
        return self._stream.batch(step)

    def state_dict(self, step: int) -> dict[str, Any]:
        return self._stream.state_dict(step)

    def check_state(self, state: dict[str, Any]) -> None:
        self._stream.check_state(state)


class Tiny(NamedTuple):
    """Un entrenamiento que parte de un modelo, con un solo checkpoint, y todo lo que lee."""

    config: Config
    run_dir: Path
    prepared: Prepared
    verdict: Path

    def files(self) -> list[Path]:
        shards, tokenizer = self.prepared.shards, self.prepared.tokenizer
        folders = [*(self.run_dir / CHECKPOINTS).iterdir(), shards, *store().iterdir()]
        found = [file for folder in folders for file in folder.iterdir()]
        return sorted([*found, tokenizer / TOKENIZER, self.verdict])

    def go_on(self, last: int = -1) -> None:
        """Lo que la etapa hace antes del primer paso: comprobar, abrir y reanudar."""
        config, shards = self.config, self.prepared.shards
        require_verdict(self.verdict, VALUES)
        index = verify_shards(shards)
        parent = find_parent(config.train)
        keep_tokenizer(self.prepared.tokenizer, self.run_dir, index.tokenizer.fingerprint)
        stream = open_stream(
            shards,
            "train",
            config.model.seq_len,
            config.sequences_per_step,
            config.train.seed,
            config.model.vocab_size,
        )
        run_training(
            self.run_dir,
            config,
            stream=Watched(stream, last),  # type: ignore[arg-type]
            origin=origin_of(self.prepared),
            evaluators=(),
            parent=parent,
        )


def origin_of(prepared: Prepared) -> dict[str, Any]:
    index = read_index(prepared.shards)
    return ORIGIN | {"data": index.fingerprint, "tokenizer": index.tokenizer.fingerprint}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    folder = tmp_path_factory.mktemp("bits")
    prepared = prepare(folder, stories(40))
    before = make_config(SHORT)
    run_training(folder / "padre", before, origin=origin_of(prepared))
    export_run(folder / "padre", folder / MODEL_FOLDER, folder / "state", prepared.tokenizer)
    write_verdict(folder / "verdict.json", verdict_key(VALUES))
    changes = SHORT | {"train.save_every": 2, "train.keep_last": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(folder))
        config = resolve_parent(make_config(changes | {"train.init_from": MODEL_FOLDER}))
        tiny = Tiny(config, folder / "run", prepared, folder / "verdict.json")
        with pytest.raises(StepTakenError):
            tiny.go_on(last=2)
        yield tiny


@pytest.mark.slow
def test_un_bit_cambiado_se_descubre_antes_de_dar_un_paso(tiny: Tiny) -> None:
    names = {file.name for file in tiny.files()}
    assert names >= {MODEL, OPTIMIZER, STATE, DIGEST, INDEX_FILE, "train-00000.bin", TOKENIZER}
    assert names >= {CONFIG, MANIFEST, MANIFEST_DIGEST, "verdict.json"}
    generator, tried = random.Random(5), 0
    with pytest.raises(StepTakenError):
        tiny.go_on()
    for file in tiny.files():
        bits = 8 * file.stat().st_size
        for bit in generator.sample(range(bits), min(bits, FLIPS_PER_FILE)):
            flip(file, bit)
            try:
                with pytest.raises((CheckpointError, DataError, PreflightError)):
                    tiny.go_on()
            except StepTakenError:
                pytest.fail(f"nadie ha visto el bit {bit} de {file}")
            flip(file, bit)
            tried += 1
    assert tried >= 500
    with pytest.raises(StepTakenError):
        tiny.go_on()
