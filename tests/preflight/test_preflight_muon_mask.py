"""El preflight mide lo mismo que se entrena, también con Muon y con la máscara de documentos."""

from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.backends import open_device
from enlace.model.cost import optimizer_bytes
from enlace.preflight.child import measured
from enlace.preflight.measurement import Measurement
from enlace.preflight.rehearsal import Instruments, run_steps
from enlace.preflight.synthetic import SyntheticStream
from enlace.train.trainer import build_training, train_step
from tests.support import make_config

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "model.n_layer": 1,
    "train.tokens_per_step": 64,
    "train.eval_tokens": 64,
    "hardware.preflight.steps": 1,
}
CASES = {
    "muon": TINY | {"train.optimizer": "muon"},
    "block": TINY | {"data.document_mask": "block"},
}


@pytest.mark.parametrize("case", CASES)
def test_los_pasos_medidos_son_los_del_entrenamiento(case: str) -> None:
    config = make_config(CASES[case])
    backend, stream = open_device(config.hardware), SyntheticStream(config)
    tried, by_hand = (build_training(config, backend) for _ in range(2))
    steps = run_steps(tried, stream, 2, Instruments.open(backend))
    expected = tuple(train_step(by_hand, stream.batch(step), step) for step in range(3))
    assert steps.results == expected
    weights = by_hand.model.state_dict()
    assert all(torch.equal(t, weights[name]) for name, t in tried.model.state_dict().items())


@pytest.mark.parametrize("case", CASES)
def test_la_medida_entera_acaba_y_cuenta_el_estado_que_hay(case: str, tmp_path: Path) -> None:
    config = make_config(CASES[case])
    outcome = measured(config, tmp_path, None, probe=False)
    assert isinstance(outcome, Measurement), outcome
    state = optimizer_bytes(config.model, config.train.optimizer) + 4 * outcome.parameters
    assert 0 < outcome.disk.checkpoint_bytes - state < state / 2
