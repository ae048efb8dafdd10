"""Un solo bit cambiado en un checkpoint, un shard o el índice se descubre antes de dar un paso."""

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from enlace.config.schema import Config
from enlace.data.index import INDEX_FILE, verify_shards
from enlace.data.streams import Batch, TokenStream, open_stream
from enlace.errors import CheckpointError, DataError
from enlace.train.checkpoint import CHECKPOINTS, DIGEST, MODEL, OPTIMIZER, STATE
from tests.data.builders import prepare, stories
from tests.support import make_config
from tests.train.checkpoints import flip
from tests.train.runs import ORIGIN, SHORT, run_training

FLIPS_PER_FILE = 75


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
    """Un entrenamiento con un solo checkpoint y sus shards."""

    config: Config
    run_dir: Path
    shards: Path

    def files(self) -> list[Path]:
        folders = [*(self.run_dir / CHECKPOINTS).iterdir(), self.shards]
        return sorted(file for folder in folders for file in folder.iterdir())

    def go_on(self, last: int = -1) -> None:
        """Lo que la etapa hace antes del primer paso: comprobar, abrir y reanudar."""
        index = verify_shards(self.shards)
        config = self.config
        stream = open_stream(
            self.shards,
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
            origin=ORIGIN | {"data": index.fingerprint},
            evaluators=(),
        )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("bits")
    prepared = prepare(folder, stories(40))
    config = make_config(SHORT | {"train.save_every": 2, "train.keep_last": 1})
    tiny = Tiny(config, folder / "run", prepared.shards)
    with pytest.raises(StepTakenError):
        tiny.go_on(last=2)
    return tiny


@pytest.mark.slow
def test_un_bit_cambiado_se_descubre_antes_de_dar_un_paso(tiny: Tiny) -> None:
    names = {file.name for file in tiny.files()}
    assert names >= {MODEL, OPTIMIZER, STATE, DIGEST, INDEX_FILE, "train-00000.bin"}
    generator, tried = random.Random(5), 0
    with pytest.raises(StepTakenError):
        tiny.go_on()
    for file in tiny.files():
        bits = 8 * file.stat().st_size
        for bit in generator.sample(range(bits), min(bits, FLIPS_PER_FILE)):
            flip(file, bit)
            try:
                with pytest.raises((CheckpointError, DataError)):
                    tiny.go_on()
            except StepTakenError:
                pytest.fail(f"nadie ha visto el bit {bit} de {file.name}")
            flip(file, bit)
            tried += 1
    assert tried >= 500
    with pytest.raises(StepTakenError):
        tiny.go_on()
