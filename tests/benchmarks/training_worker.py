"""El proceso de un contrincante: `python -m tests.benchmarks.training_worker NOMBRE AJUSTES`.

Vive mientras dura la comparación y trabaja solo cuando le toca: así ni la memoria ni el asignador
de uno se mezclan con los de otro. Lo que las bibliotecas escriban por la salida va a la de errores.
"""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from enlace.process import die_with_parent
from tests.benchmarks.training_session import Session
from tests.benchmarks.training_works import Setup

OURS = "enlace"
REFERENCE = "referencia"
FLOOR = "suelo"
MACHINE = "máquina"


class Contender(NamedTuple):
    """Dónde está la función que lo monta y qué bibliotecas le hacen falta."""

    module: str
    function: str
    needs: tuple[str, ...] = ()


_PEERS = "tests.benchmarks.training_peers"
_PARTS = "tests.benchmarks.training_parts"
CONTENDERS = {
    OURS: Contender(_PEERS, "enlace"),
    "transformers": Contender(_PEERS, "transformers_loop", ("transformers",)),
    "Trainer": Contender(_PEERS, "transformers_trainer", ("transformers", "accelerate")),
    "litgpt": Contender(_PEERS, "litgpt", ("litgpt", "lightning")),
    "x-transformers": Contender(_PEERS, "x_transformers", ("x_transformers",)),
    REFERENCE: Contender(_PEERS, "reference"),
    FLOOR: Contender("tests.benchmarks.training_floor", "floor"),
    MACHINE: Contender(_PARTS, "machine"),
    "loss-enlace": Contender(_PARTS, "loss_enlace"),
    "loss-plain": Contender(_PARTS, "loss_plain"),
    "stream-enlace": Contender(_PARTS, "stream_enlace"),
    "stream-nanogpt": Contender(_PARTS, "stream_nanogpt"),
}
STEP_PEERS = ["transformers", "Trainer", "litgpt", "x-transformers", REFERENCE, FLOOR]


def missing(needs: Sequence[str]) -> list[str]:
    """Las bibliotecas que no están instaladas."""
    return [name for name in needs if find_spec(name) is None]


def main(name: str, settings: str) -> None:
    """Monta el contrincante `name` y atiende sus turnos hasta que se cierra la entrada."""
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    contender, setup = CONTENDERS[name], Setup.from_json(json.loads(settings))
    if lacking := missing(contender.needs):
        replies.write(json.dumps({"missing": lacking}) + "\n")
        replies.flush()
        return
    import torch

    torch.manual_seed(0)
    if setup.device == "cpu":
        torch.set_num_threads(setup.threads)
    session = Session(sys.stdin, replies, setup.device)
    build = getattr(importlib.import_module(contender.module), contender.function)
    build(setup, session)


if __name__ == "__main__":
    main(*sys.argv[1:])
