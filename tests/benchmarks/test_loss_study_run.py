"""Los entrenamientos del estudio, con un modelo minúsculo: mismos lotes y misma validación."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.backends import open_device
from enlace.data.streams import validation_batches
from enlace.evaluation.loss import evaluate_loss
from enlace.model.hf_names import hf_name
from enlace.model.transformer import Transformer
from tests.benchmarks import loss_study_peer, loss_study_run
from tests.benchmarks.loss_study import run_job
from tests.benchmarks.loss_study_peer import Windows, validate_qwen3
from tests.benchmarks.loss_study_plan import RECIPES, Job
from tests.benchmarks.loss_study_records import read_records
from tests.benchmarks.loss_study_run import (
    PROBE,
    SIZES,
    Meter,
    is_peer,
    open_batches,
    study_config,
)
from tests.benchmarks.peer_qwen3 import build_qwen3
from tests.data.builders import bpe, prepare, stories

STEPS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estudio")
    prepare(folder, stories(40), bpe(PROBE.vocab_size) | {"data.val_fraction": 0.2})
    return folder


@pytest.mark.parametrize("recipe", RECIPES)
def test_la_receta_llega_a_la_configuracion_y_el_modelo_es_el_mismo(recipe: str) -> None:
    job = Job(recipe, 2e-3, 3, 120)
    config = study_config(job)
    assert (config.train.lr, config.train.seed, config.train.steps) == (2e-3, 3, 120)
    assert config.train.tokens_per_step == SIZES["study"].batch * SIZES["study"].seq_len
    assert config.model == study_config(Job("adamw-wsd", 1e-3, 1)).model
    if not is_peer(job):
        values = config.train.model_dump()
        assert {key: values[key] for key in RECIPES[recipe]} == RECIPES[recipe]
        assert f"{config.train.optimizer}-{config.train.schedule}" == recipe


def test_transformers_recibe_los_lotes_de_enlace_en_su_orden(folder: Path) -> None:
    stream = open_batches(folder / "shards", study_config(Job("adamw-wsd", 1e-3, 2), PROBE))
    loader: Any = torch.utils.data.DataLoader(Windows(stream, 3), batch_size=PROBE.batch)
    batches = list(loader)
    assert len(batches) == 3
    for step, batch in enumerate(batches):
        ids_BT, targets_BT = stream.batch(step)
        assert torch.equal(batch["input_ids"], ids_BT)
        assert torch.equal(batch["shift_labels"], targets_BT)
        assert torch.equal(batch["labels"], targets_BT)


def test_el_optimizador_no_cuenta_como_gradientes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Iterator[float] = iter([0.0, 5.0, 7.0, 10.0, 20.0, 21.0])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer, meter = torch.optim.SGD([weight]), Meter()
    meter.watch(optimizer)
    meter.begin_step()
    optimizer.step()
    meter.end_step()
    meter.start()
    meter.stop("validation")
    assert meter.seconds == {"gradients": 8.0, "optimizer": 2.0, "validation": 1.0}


def test_lo_que_se_detiene_se_apunta_como_fallo(folder: Path) -> None:
    figures = loss_study_run.run(folder / "shards", Job("adamw-wsd", 1e30, 1, STEPS), PROBE)
    assert figures["val_loss"] is None
    assert figures["failure"]
    assert figures["tokens"] < STEPS * PROBE.batch * PROBE.seq_len


@pytest.mark.slow
def test_un_entrenamiento_de_cada_clase_se_apunta_y_se_repite_igual(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    seen: list[torch.Tensor] = []
    build = build_qwen3

    def observed(config: Any) -> Any:
        model = build(config)
        model.register_forward_pre_hook(
            lambda _, __, inputs: seen.append(inputs["input_ids"]), with_kwargs=True
        )
        return model

    monkeypatch.setattr(loss_study_peer, "build_qwen3", observed)
    losses = []
    jobs = [Job(recipe, 1e-2, 1, STEPS) for recipe in ("muon-wsd", "transformers")]
    for name in ("una", "otra"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shards").symlink_to(folder / "shards")
        assert all(run_job(tmp_path / name, job, PROBE) for job in jobs)
        assert not any(run_job(tmp_path / name, job, PROBE) for job in jobs)
        records = read_records(tmp_path / name)
        losses.append([(record["val_loss"], record["train_losses"]) for record in records])
        for record in records:
            assert record["cpu_seconds"]["gradients"] > 0
            assert record["tokens"] == STEPS * PROBE.batch * PROBE.seq_len
    assert losses[0] == losses[1]
    assert len({record["val_tokens"] for record in records}) == 1
    stream = open_batches(folder / "shards", study_config(jobs[0], PROBE))
    for step, ids_BT in enumerate(seen[:STEPS]):
        assert torch.equal(ids_BT, stream.batch(step).ids)


@pytest.mark.slow
def test_los_dos_validan_igual_el_mismo_modelo(folder: Path) -> None:
    pytest.importorskip("transformers")
    config = study_config(Job("adamw-wsd", 1e-3, 1), PROBE)
    torch.manual_seed(5)
    ours, theirs = Transformer(config.model, "math"), build_qwen3(config.model)
    weights = {hf_name(name): value for name, value in ours.state_dict().items()}
    missing = theirs.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["lm_head.weight"]
    assert not missing.unexpected_keys

    def batches() -> Any:
        return validation_batches(folder / "shards", "val", config.model.seq_len, PROBE.batch, 0)

    figures = evaluate_loss(ours, batches(), open_device(config.hardware))
    loss, tokens = validate_qwen3(theirs, batches())
    assert tokens == figures.tokens
    assert loss == pytest.approx(figures.loss, rel=1e-6)
