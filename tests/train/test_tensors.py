"""El modelo, los momentos y el azar como tensores con nombre: la carga es estricta."""

import json
import shutil
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from enlace.backends import open_device
from enlace.errors import CheckpointError
from enlace.files import sha256_file
from enlace.progress import TrainLog
from enlace.train.checkpoint import MODEL, OPTIMIZER, STATE
from enlace.train.resume import open_run
from enlace.train.tensors import (
    load_model_tensors,
    load_optimizer_tensors,
    load_rng_tensors,
    model_tensors,
    optimizer_tensors,
)
from enlace.train.trainer import build_training, train_step
from tests.support import make_config
from tests.train.checkpoints import CPU, rewrite_state
from tests.train.runs import ORIGIN, SHORT, last_checkpoint, run_training
from tests.train.streams import PeriodicStream


def test_los_nombres_no_llevan_el_prefijo_de_compile() -> None:
    config = make_config()
    training = build_training(config, open_device(config.hardware))
    compiled = cast(nn.Module, torch.compile(training.model, backend="eager"))
    assert model_tensors(compiled).keys() == model_tensors(training.model).keys()
    assert not any("_orig_mod" in name for name in model_tensors(compiled))
    train_step(training, PeriodicStream(config).batch(0), 0)
    assert optimizer_tensors(compiled, training.optimizer).keys() == (
        optimizer_tensors(training.model, training.optimizer).keys()
    )


def test_cargar_no_suelta_el_peso_atado(finished: Path) -> None:
    config = make_config(SHORT)
    training = build_training(config, open_device(config.hardware))
    load_model_tensors(training.model, load_file(last_checkpoint(finished) / MODEL), finished)
    assert training.model.tok_emb.weight is training.model.lm_head.weight


def test_un_parametro_que_falta_o_sobra_es_un_error(finished: Path) -> None:
    config = make_config(SHORT)
    model = build_training(config, open_device(config.hardware)).model
    tensors = load_file(last_checkpoint(finished) / MODEL)
    missing = {name: value for name, value in tensors.items() if name != "norm.weight"}
    with pytest.raises(CheckpointError, match=r"falta norm\.weight"):
        load_model_tensors(model, missing, finished)
    with pytest.raises(CheckpointError, match=r"sobra _orig_mod\.norm"):
        load_model_tensors(model, tensors | {"_orig_mod.norm": torch.ones(1)}, finished)


@pytest.mark.parametrize(
    "wrong", [torch.ones(31), torch.ones(32, dtype=torch.float16), torch.ones(32, 1)]
)
def test_otra_forma_u_otro_dtype_es_un_error(finished: Path, wrong: torch.Tensor) -> None:
    config = make_config(SHORT)
    model = build_training(config, open_device(config.hardware)).model
    before = model.tok_emb.weight.detach().clone()
    tensors = load_file(last_checkpoint(finished) / MODEL) | {"norm.weight": wrong}
    with pytest.raises(CheckpointError, match=r"norm\.weight es .* y debe ser \(32,\)"):
        load_model_tensors(model, tensors, finished)
    assert torch.equal(model.tok_emb.weight, before)


def test_un_momento_que_falta_es_un_error(finished: Path) -> None:
    config = make_config(SHORT)
    training = build_training(config, open_device(config.hardware))
    tensors = load_file(last_checkpoint(finished) / OPTIMIZER)
    moments = {name: value for name, value in tensors.items() if not name.startswith("rng/")}
    load_optimizer_tensors(training.model, training.optimizer, moments, finished)
    del moments["exp_avg_sq/norm.weight"]
    with pytest.raises(CheckpointError, match=r"falta exp_avg_sq/norm\.weight"):
        load_optimizer_tensors(training.model, training.optimizer, moments, finished)


def test_unos_momentos_ausentes_no_pasan_por_un_optimizador_nuevo(run_dir: Path) -> None:
    path = last_checkpoint(run_dir)
    rng = {k: v for k, v in load_file(path / OPTIMIZER).items() if k.startswith("rng/")}
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    save_file(rng, path / OPTIMIZER)
    state["files"][OPTIMIZER] = sha256_file(path / OPTIMIZER)
    rewrite_state(path, state)
    with pytest.raises(CheckpointError, match="no casa con los 6 pasos"):
        run_training(run_dir, make_config(SHORT))


def test_el_azar_que_falta_es_un_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="rng/cpu"):
        load_rng_tensors(CPU, {}, tmp_path)
    with pytest.raises(CheckpointError, match="ilegible"):
        load_rng_tensors(CPU, {"rng/cpu": torch.zeros(3, dtype=torch.uint8)}, tmp_path)


def test_el_modelo_cargado_no_comparte_memoria_con_el_fichero(run_dir: Path) -> None:
    config = make_config(SHORT)
    training = build_training(config, open_device(config.hardware))
    log = TrainLog(run_dir, steps=6, tokens_per_step=256)
    open_run(training, PeriodicStream(config), run_dir, log, ORIGIN)
    before = training.model.norm.weight.detach().clone()
    shutil.rmtree(run_dir)
    assert torch.equal(training.model.norm.weight, before)
    moment = training.optimizer.state[training.model.norm.weight]["exp_avg"]
    assert moment.data_ptr() != training.model.norm.weight.data_ptr()
