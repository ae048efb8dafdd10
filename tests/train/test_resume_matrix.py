"""Reanudar es exacto en todas las combinaciones: matado a mitad y seguido, lo mismo bit a bit.

Cada caso se mata y se sigue en procesos nuevos (`tests.train.runs`). Aquí están todas las parejas
de valores, que tardan; las combinaciones más llenas se prueban siempre en `test_resume.py`.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from enlace.backends import open_device
from enlace.train.checkpoint import MODEL, newest_complete
from enlace.train.tensors import model_tensors
from enlace.train.trainer import build_training
from tests.support import make_config
from tests.train.runs import run_training
from tests.train.test_resume import assert_same_training, kill_and_resume

OPTIMIZERS = ("adamw", "muon")
PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"hardware.dtype": "fp16", "train.fp16_init_scale": 2.0**20},
}
BASE: dict[str, Any] = {"hardware.threads": 1, "train.eval_every": 3}
"""Con los 20 pasos de la configuración de prueba, un checkpoint cada 5 y la muerte en el 13."""


def case(
    optimizer: str, precision: str, micro_batch: int, dropout: float, checkpointing: str
) -> dict[str, Any]:
    changes = {"train.optimizer": optimizer, "hardware.micro_batch": micro_batch}
    changes |= {"model.dropout": dropout, "hardware.activation_checkpointing": checkpointing}
    return BASE | PRECISIONS[precision] | changes


AXES: tuple[tuple[Any, ...], ...] = (
    OPTIMIZERS,
    tuple(PRECISIONS),
    (2, 8),
    (0.0, 0.2),
    ("none", "mlp", "block"),
)
MATRIX = {
    "-".join(map(str, combination)): case(*combination)
    for position, combination in enumerate(itertools.product(*AXES))
    if position % 13 in (0, 8)
}
"""Ocho casos del producto, en los que aparecen todas las parejas de valores."""


def check(folder: Path, cases: dict[str, dict[str, Any]]) -> None:
    kill_and_resume(folder, cases)
    for name, changes in cases.items():
        run_training(folder / f"{name}-seguido", make_config(changes))
        assert_same_training(folder / name, folder / f"{name}-seguido")


def test_cada_pareja_de_valores_aparece() -> None:
    for one, other in itertools.combinations(range(len(AXES)), 2):
        expected = {f"{a}|{b}" for a, b in itertools.product(AXES[one], AXES[other])}
        parts = [name.split("-") for name in MATRIX]
        assert {f"{part[one]}|{part[other]}" for part in parts} == expected


@pytest.mark.slow
def test_todas_las_parejas(tmp_path: Path) -> None:
    check(tmp_path, MATRIX)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
def test_con_compile_tambien_y_con_los_mismos_nombres(tmp_path: Path) -> None:
    changes = BASE | {"hardware.compile": True, "model.dropout": 0.1}
    check(tmp_path, {"compilado": changes})
    config = make_config()
    plain = build_training(config, open_device(config.hardware)).model
    found = newest_complete(tmp_path / "compilado")
    assert found is not None
    assert load_file(found.path / MODEL).keys() == model_tensors(plain).keys()
