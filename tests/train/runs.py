"""Entrenamientos de prueba y lo que se compara entre ellos.

Como programa, corre cada caso dos veces en procesos nuevos sobre la misma carpeta: el primero se
mata con SIGKILL a mitad de un paso y el segundo sigue hasta el final.

    python -m tests.train.runs CARPETA '{"caso": {"train.lr": 1e-3, …}, …}'
"""

import io
import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.model.transformer import Transformer
from enlace.process import StopSignal
from enlace.progress import COLUMNS, TrainLog
from enlace.train.artifact import Artifact
from enlace.train.checkpoint import MODEL, OPTIMIZER, checkpoint_dir, newest_complete
from enlace.train.container import read_tensors
from enlace.train.trainer import Evaluator, TrainResult, train
from tests.support import make_config
from tests.train.streams import PeriodicStream

ORIGIN: dict[str, Any] = {
    "version": 1,
    "data": "d" * 64,
    "tokenizer": "bytes",
    "corpus_report": None,
    "shards": {},
    "code": "c" * 64,
    "code_normalized": "a" * 64,
    "sources": {},
    "git": {"commit": None, "diff_sha256": None},
    "dvc": {"stage": "pretrain", "pipeline_sha256": None, "lock": {}},
    "parent": None,
}
KILL_AT = 13
SHORT = {"train.steps": 6, "train.save_every": 3, "train.eval_every": 3}
"""Un entrenamiento con dos checkpoints, en los pasos 3 y 6."""


def validate(model: Transformer) -> Iterable[tuple[str, float]]:
    """Un evaluador que además gasta azar y cambia de modo, cosas que el bucle debe deshacer."""
    model.eval()
    torch.rand(3)
    ids_BT = torch.arange(32)[None]
    with torch.no_grad():
        _, loss = model(ids_BT, ids_BT + 1)
    assert loss is not None
    yield "val_loss", loss.item()


def run_training(
    run_dir: Path,
    config: Config,
    *,
    stream: PeriodicStream | None = None,
    origin: dict[str, Any] | None = None,
    evaluators: Sequence[Evaluator] = (validate,),
    reports_dir: Path | None = None,
    output: io.StringIO | None = None,
    parent: Artifact | None = None,
) -> TrainResult:
    """Entrena como la etapa, con el registro en `output` (o en ninguna parte)."""
    log = TrainLog(
        run_dir,
        steps=config.train.steps,
        tokens_per_step=config.train.tokens_per_step,
        reports_dir=reports_dir,
        console=Console(file=output or io.StringIO(), width=200),
    )
    with log, StopSignal() as stop:
        return train(
            config,
            open_device(config.hardware),
            stream or PeriodicStream(config),
            run_dir,
            evaluators=evaluators,
            log=log,
            origin=ORIGIN if origin is None else origin,
            stop=stop,
            parent=parent,
        )


def final_tensors(run_dir: Path) -> dict[str, Tensor]:
    """Pesos, momentos y azar del último checkpoint."""
    found = newest_complete(run_dir)
    assert found is not None
    return read_tensors(found.path / MODEL) | read_tensors(found.path / OPTIMIZER)


def final_state(run_dir: Path) -> dict[str, Any]:
    """El estado del último checkpoint sin lo que depende del reloj."""
    found = newest_complete(run_dir)
    assert found is not None
    state = dict(found.state)
    del state["clock"]
    for segment in state["segments"]:
        del segment["started"]
    return state


def deterministic_rows(run_dir: Path) -> list[tuple[str, ...]]:
    """`train.tsv` sin la columna de velocidad."""
    lines = (run_dir / "train.tsv").read_text(encoding="utf-8").splitlines()
    noisy = COLUMNS.index("tokens_per_second")
    cells = [line.split("\t") for line in lines]
    return [tuple(row[:noisy] + row[noisy + 1 :]) for row in cells]


def last_checkpoint(run_dir: Path) -> Path:
    """El último checkpoint de un entrenamiento `SHORT`."""
    return checkpoint_dir(run_dir, SHORT["train.steps"])


def _in_new_process(run_dir: Path, config: Config, kill_at: int | None) -> int:
    """Entrena en un proceso bifurcado antes de que torch haya calculado nada."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run_training(run_dir, config, stream=PeriodicStream(config, kill_at=kill_at))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Mata y reanuda cada caso."""
    # El optimizador lo importa al crearse, y tarda más que estos entrenamientos: una vez basta.
    import torch._dynamo  # noqa: F401

    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    for name, changes in cases.items():
        config = make_config(changes)
        killed = _in_new_process(folder / name, config, KILL_AT)
        assert killed == -signal.SIGKILL, f"{name}: {killed}"
        resumed = _in_new_process(folder / name, config, None)
        assert resumed == 0, f"{name}: {resumed}"


if __name__ == "__main__":
    main()
