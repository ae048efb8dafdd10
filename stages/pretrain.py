"""Etapa pretrain: entrenar, seguir donde se cortó y entregar solo un modelo terminado."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.data.index import verify_shards
from enlace.data.streams import Batch, open_stream, validation_batches
from enlace.data.tokenizer import load_tokenizer
from enlace.evaluation.byte_counts import bytes_per_id
from enlace.evaluation.loss import loss_evaluator
from enlace.files import remove_temporaries
from enlace.paths import (
    CORPUS,
    MODEL,
    PRETRAIN_REPORTS,
    SHARDS,
    STATE,
    TOKENIZER,
    runs_folder,
)
from enlace.process import StopSignal, delegate, device_lock, exclusive_lock
from enlace.progress import TrainLog
from enlace.provenance import InputsGuard, run_key
from enlace.train.artifact import Artifact
from enlace.train.export import export_run
from enlace.train.folder import keep_tokenizer, point_to, retire_finished
from enlace.train.hooks import hooks
from enlace.train.origin import collect_origin, keep_patch
from enlace.train.parent import find_parent, parent_record
from enlace.train.trainer import Evaluator, train
from stages.device import open_announced
from stages.start import inputs_guard, stage

PREFLIGHT_GATE = (sys.executable, "-m", "stages.preflight", "--require")
"""La puerta del preflight es otro proceso y no un import: cambiar cómo se mide no debe obligar a
entrenar otra vez, y quien mide necesita la tarjeta libre. Por eso va antes de cerrarla."""


def main() -> None:
    """Pasa la puerta del preflight y comprueba los datos, entrena hasta el final y exporta."""
    with stage("pretrain") as view:
        config = view.whole()
        guard = inputs_guard("pretrain")
        current = runs_folder() / config.run_name
        with hooks(config.train, config.run_name, lambda: current, print):
            delegate(PREFLIGHT_GATE)
            with device_lock(config.hardware.device):
                _deliver(config, guard)


def _deliver(config: Config, guard: InputsGuard) -> None:
    """Entrena hasta el final con la tarjeta ya cerrada y entrega el modelo."""
    index = verify_shards(SHARDS)
    parent = find_parent(config.train)
    record = None if parent is None else parent_record(parent, config.train.init_state)
    provenance = collect_origin(config, index, CORPUS, "pretrain", record)
    origin = provenance.model_dump(mode="json")
    folder = runs_folder() / f"{config.run_name}-{run_key(config.identity(), index.fingerprint)}"
    with exclusive_lock(folder / "lock"):
        remove_temporaries(folder)  # los de un corte: con el cerrojo, la carpeta es solo nuestra
        point_to(folder, runs_folder() / config.run_name)
        retire_finished(folder, origin, config.train.steps)
        keep_patch(folder, provenance.git)
        keep_tokenizer(TOKENIZER, folder, index.tokenizer.fingerprint)
        backend = open_announced(config.hardware, config.model, config.data.document_mask)
        _train(config, backend, folder, origin, parent)
        guard.check(
            f"El trabajo está completo en {folder}; deja las entradas como estaban y repite la "
            "orden: solo tendrá que exportar (o repítela así para empezar con las nuevas)"
        )
        export_run(folder, MODEL, STATE, TOKENIZER)
    print(f"modelo en {MODEL}")


def _train(
    config: Config,
    backend: Backend,
    folder: Path,
    origin: dict[str, Any],
    parent: Artifact | None,
) -> None:
    stream = open_stream(
        SHARDS,
        "train",
        config.model.seq_len,
        config.sequences_per_step,
        config.train.seed,
        config.model.vocab_size,
    )
    log = TrainLog(
        folder,
        steps=config.train.steps,
        tokens_per_step=config.train.tokens_per_step,
        reports_dir=PRETRAIN_REPORTS,
    )
    with log, StopSignal() as stop:
        train(
            config,
            backend,
            stream,
            folder,
            evaluators=[_validation(config, backend)],
            log=log,
            origin=origin,
            stop=stop,
            parent=parent,
        )


def _validation(config: Config, backend: Backend) -> Evaluator:
    sizes = bytes_per_id(load_tokenizer(TOKENIZER), config.model.vocab_size)

    def batches() -> Iterable[Batch]:
        return validation_batches(
            SHARDS,
            "val",
            config.model.seq_len,
            config.hardware.micro_batch,
            config.train.eval_tokens,
            config.model.vocab_size,
        )

    return loss_evaluator(batches, backend, sizes)


if __name__ == "__main__":
    main()
