"""Qué checkpoints se conservan y cuáles se borran."""

from pathlib import Path

import pytest

from enlace.errors import CheckpointError
from enlace.train.checkpoint import CHECKPOINTS, DIGEST
from enlace.train.retention import (
    check_room,
    is_milestone,
    is_save_time,
    kept_checkpoints,
    prune,
    save_count,
)
from tests.support import make_config
from tests.train.checkpoints import save_small, steps_in
from tests.train.runs import SHORT, run_training


def test_se_guardan_los_ultimos_el_mejor_los_hitos_y_el_de_antes_de_decaer(
    tmp_path: Path,
) -> None:
    train = make_config({"train.keep_last": 2, "train.keep_every": 10}).train
    losses = {4: 3.0, 6: 1.0, 8: 2.0}
    for step in (2, 4, 6, 8, 10, 12, 14, 16, 18, 20):
        loss = losses.get(step)
        save_small(tmp_path, step, evaluation={} if loss is None else {"val_loss": loss})
    removed = prune(tmp_path, train)
    # 18 y 20, los últimos; 6, el mejor; 10 y 20, hitos; 16, el de antes de decaer (20 − 4).
    assert steps_in(tmp_path) == [6, 10, 16, 18, 20]
    assert [int(path.name[5:]) for path in removed] == [2, 4, 8, 12, 14]


def test_el_coseno_no_guarda_nada_antes_de_decaer(tmp_path: Path) -> None:
    train = make_config({"train.keep_last": 1, "train.schedule": "cosine"}).train
    for step in (2, 16, 20):
        save_small(tmp_path, step)
    prune(tmp_path, train)
    assert steps_in(tmp_path) == [20]


def test_podar_no_toca_lo_que_no_entiende(tmp_path: Path) -> None:
    train = make_config({"train.keep_last": 1}).train
    strange = save_small(tmp_path, 1)
    (strange / DIGEST).unlink()
    notes = tmp_path / CHECKPOINTS / "notas"
    notes.mkdir()
    save_small(tmp_path, 2)
    prune(tmp_path, train)
    assert strange.is_dir()
    assert notes.is_dir()


def test_el_bucle_guarda_antes_de_decaer_aunque_no_toque(tmp_path: Path) -> None:
    changes = {"train.steps": 9, "train.decay": 4, "train.save_every": 3, "train.keep_last": 1}
    run_training(tmp_path, make_config(changes), evaluators=())
    assert steps_in(tmp_path) == [5, 9]


def test_el_sitio_se_mira_antes_de_empezar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Los que conviven: 2 recientes, el mejor, el de antes de decaer y el que se escribe.
    config, size = make_config(), 1 << 20
    save_small(tmp_path, 5)
    present = sum(file.stat().st_size for file in (tmp_path / CHECKPOINTS).rglob("*.*"))

    def free(bytes_free: int) -> None:
        usage = type("Usage", (), {"free": bytes_free})()
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    free(5 * size - present)
    check_room(tmp_path, config, size)
    free(5 * size - present - 1)
    with pytest.raises(CheckpointError, match=r"los 5 checkpoints.*train\.keep_last"):
        check_room(tmp_path, config, size)
    free(0)
    with pytest.raises(CheckpointError, match="no hay disco"):
        run_training(tmp_path / "otro", config)
    assert not (tmp_path / "otro" / CHECKPOINTS).exists()


def test_un_run_terminado_no_pide_sitio(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 0})()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert run_training(finished, make_config(SHORT)).step == SHORT["train.steps"]


@pytest.mark.parametrize("steps", [20, 21, 24, 60])
@pytest.mark.parametrize("save_every", [1, 4, 6, 7, 100])
@pytest.mark.parametrize("keep_every", [0, 1, 6, 7, 9])
def test_las_cuentas_de_checkpoints_son_las_de_recorrer_los_pasos(
    steps: int, save_every: int, keep_every: int
) -> None:
    changes = {"steps": steps, "save_every": save_every, "keep_every": keep_every}
    config = make_config({f"train.{name}": value for name, value in changes.items()})
    saved = [step + 1 for step in range(steps) if is_save_time(step, config.train)]
    milestones = sum(is_milestone(step, config.train) for step in saved)
    others = min(config.train.keep_last + 1, len(saved) - milestones)
    assert save_count(config.train) == len(saved)
    assert kept_checkpoints(config) == milestones + others + 1


def test_contar_checkpoints_no_depende_de_cuantos_pasos_haya() -> None:
    config = make_config({"train.steps": 10**15, "train.save_every": 1, "train.keep_every": 1})
    assert kept_checkpoints(config) == 10**15 + 1
