"""La máscara de documentos al entrenar, al validar, con objetivos sin contar y en lo entregado."""

from pathlib import Path

import pytest
import torch

from enlace.backends import open_device
from enlace.data.streams import IGNORED, Batch
from enlace.errors import CheckpointError
from enlace.evaluation.loss import evaluate_loss
from enlace.train.artifact import TOKENIZER
from enlace.train.export import export_run, load_model
from enlace.train.trainer import build_training, train_step
from tests.support import make_config
from tests.train.runs import final_tensors, run_training

BLOCK = {"data.document_mask": "block", "model.dropout": 0.0}


def _batch(rows: int = 8, length: int = 32, mean: int = 6) -> Batch:
    """Ventanas con varios documentos y, como en las conversaciones, objetivos que no cuentan."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, 256, (rows, length + 1), generator=generator)
    tokens[torch.rand(tokens.shape, generator=generator) < 1 / mean] = 0
    targets = tokens[:, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < 0.3] = IGNORED
    targets[0] = IGNORED
    return Batch(tokens[:, :-1].contiguous(), targets)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_la_perdida_y_el_gradiente_no_dependen_del_micro_batch(dtype: str) -> None:
    outcomes = []
    for micro_batch in (8, 2):
        changes = {**BLOCK, "hardware.micro_batch": micro_batch, "hardware.dtype": dtype}
        config = make_config(changes)
        training = build_training(config, open_device(config.hardware))
        assert training.model.document_mask == "block"
        result = train_step(training, _batch(), 0)
        assert not result.skipped
        outcomes.append((result.loss, result.grad_norm))
    tolerance = 1e-5 if dtype == "fp32" else 1e-3
    assert outcomes[0] == pytest.approx(outcomes[1], rel=tolerance)


def test_validar_da_lo_mismo_con_cualquier_lote_y_con_relleno() -> None:
    config = make_config(BLOCK)
    backend = open_device(config.hardware)
    model, batch = build_training(config, backend).model, _batch()
    whole = evaluate_loss(model, [batch], backend)
    padding = Batch(torch.zeros_like(batch.ids), torch.full_like(batch.targets, IGNORED))
    rows = [*map(Batch, batch.ids.split(3), batch.targets.split(3)), padding]
    parts = evaluate_loss(model, rows, backend)
    assert parts.tokens == whole.tokens == int((batch.targets != IGNORED).sum())
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    plain = build_training(make_config(), backend).model
    assert evaluate_loss(plain, [batch], backend).loss != pytest.approx(whole.loss, rel=1e-6)


def test_lo_entregado_sigue_enmascarando_y_se_niega_donde_no_puede(tmp_path: Path) -> None:
    config = make_config({**BLOCK, "train.steps": 2, "train.warmup": 0, "train.decay": 1})
    run_training(tmp_path / "run", config)
    (tmp_path / TOKENIZER).write_text("{}", encoding="utf-8")
    export_run(tmp_path / "run", tmp_path / "model", tmp_path / "state", tmp_path)
    model, found = load_model(tmp_path / "model", "flash", "cpu")
    assert model.document_mask == found.data.document_mask == "block"
    expected = final_tensors(tmp_path / "run")
    assert all(torch.equal(p, expected[name]) for name, p in model.named_parameters())
    message = "no admite máscara en cuda; pon hardware.sdpa_backend: mem_efficient"
    for kernel in ("flash", "cudnn"):
        with pytest.raises(CheckpointError, match=message):
            load_model(tmp_path / "model", kernel, "cuda")
