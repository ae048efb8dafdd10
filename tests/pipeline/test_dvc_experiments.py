"""Experimentos de DVC en carpetas temporales: el valor exacto, desde cero y sin tocar lo demás."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.support_dvc import STEPS, Clone

pytestmark = pytest.mark.slow


def test_cada_experimento_entrena_con_su_valor_en_su_carpeta_y_no_toca_lo_demas(
    finished: Clone,
) -> None:
    (base,), rate = finished.run_folders(), finished.rate()
    before = (finished.root / "dvc.lock").read_bytes(), finished.weights(), finished.git("log")
    _experiment(finished, "pequeno", "3e-5")
    # El mismo número escrito de otra manera: la misma identidad, así que ya está entrenado. DVC
    # también lo reconocería con su caché de ejecuciones; sin ella decide el entrenador.
    shutil.rmtree(finished.root / ".dvc/cache/runs")
    done = _experiment(finished, "igual", "3.0e-5")
    assert f"los {STEPS} pasos ya están dados " in done
    assert f"paso {STEPS}/" not in done
    (new,) = set(finished.run_folders()) - {base}
    assert _state(new)["config"]["train"]["lr"] == 3e-5
    assert _state(new)["segments"][0]["from_step"] == 0
    assert finished.git("status", "--porcelain") == ""
    assert finished.rate() == rate
    after = (finished.root / "dvc.lock").read_bytes(), finished.weights(), finished.git("log")
    assert after == before
    shown = _experiments(finished)
    old_loss, loss = (
        json.loads((folder / "metrics.json").read_text())["loss"] for folder in (base, new)
    )
    assert loss != old_loss
    assert shown == {"pequeno": loss, "igual": loss}


def _experiment(clone: Clone, name: str, rate: str) -> str:
    options = ("--temp", "--name", name, "-S", f"train.lr={rate}")
    return clone.dvc("exp", "run", *options, "pretrain").text


def _state(folder: Path) -> dict[str, Any]:
    path = folder / f"checkpoints/step_{STEPS:08d}/state.json"
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def _experiments(clone: Clone) -> dict[str, float]:
    """El nombre y la pérdida de cada experimento, según `dvc exp show`."""
    text = clone.dvc("exp", "show", "--json").text
    (commit,) = [row for row in json.loads(text) if row["rev"] != "workspace"]
    found = {}
    for experiment in commit["experiments"]:
        (revision,) = experiment["revs"]
        metrics = revision["data"]["metrics"]["reports/pretrain/metrics.json"]["data"]
        found[experiment["name"]] = metrics["loss"]
    return found
