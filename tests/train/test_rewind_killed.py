"""Un SIGKILL en mitad de una vuelta atrás no cambia nada: se sigue, y el resultado es el mismo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.train.rewind_kills import KILLS, QUIET
from tests.train.runs import deterministic_rows, final_state, final_tensors


@pytest.mark.slow
def test_matado_en_mitad_de_una_vuelta_sigue_y_acaba_igual(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.train.rewind_kills", str(tmp_path)],
        check=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
    )
    quiet = tmp_path / QUIET
    expected, (segment,) = final_tensors(quiet), final_state(quiet)["segments"]
    assert [(rewind["at_step"], rewind["to_step"]) for rewind in segment["rewinds"]] == [(12, 10)]
    killed = sorted(tmp_path.glob("muerte-*"))
    assert len(killed) == KILLS
    for place in killed:
        found = final_tensors(place)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected), place
        assert final_state(place) == final_state(quiet)
        assert deterministic_rows(place) == deterministic_rows(quiet)
        assert not list(place.rglob(".tmp-*")), place
