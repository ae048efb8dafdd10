"""El orden del estudio, que se pueda parar donde sea, y su cuaderno."""

import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import loss_study
from tests.benchmarks.loss_study_plan import (
    ADAMW_GRID,
    MUON_GRID,
    RECIPES,
    SEEDS,
    SHORT_STEPS,
    STEPS,
    Job,
    bracket,
    job_of,
    pending,
    read_losses,
)
from tests.benchmarks.loss_study_records import NAME, append_record, read_records

_BEST = {"adamw-wsd": 2e-3, "muon-wsd": 3.2e-2, "adamw-cosine": 4e-3, "transformers": 5e-4}


def invented_loss(job: Job) -> float:
    """Una pérdida con un solo mínimo en la tasa; con las más altas, diverge."""
    if job.lr > 0.1:
        return math.inf
    away = abs(math.log2(job.lr / _BEST.get(job.recipe, 8e-3)))
    return 5 + away / 10 - job.steps / 1000 + job.seed / 100


def whole_study(size: str = "study") -> list[Job]:
    """Todos los entrenamientos, hechos de uno en uno por el orden del plan."""
    losses: dict[Job, float] = {}
    while left := pending(losses, size):
        losses[left[0]] = invented_loss(left[0])
    return list(losses)


def record_of(job: Job, loss: float | None = None, **changes: Any) -> dict[str, Any]:
    """Una línea inventada del cuaderno."""
    value = invented_loss(job) if loss is None else loss
    return {
        **job._asdict(),
        "val_loss": value if math.isfinite(value) else None,
        "failure": "" if math.isfinite(value) else "no finita",
        "train_losses": {"20": 7.0, "40": 6.0},
        "cpu_seconds": {"gradients": 100.0, "optimizer": 1.0, "validation": 5.0},
        "load": 2.0,
        **changes,
    }


def test_lo_primero_son_las_tasas_y_enseguida_lo_que_decide() -> None:
    order = whole_study()
    grid = len(ADAMW_GRID) + len(MUON_GRID)
    assert {job.recipe for job in order[:grid]} == {"adamw-wsd", "muon-wsd"}
    assert {job.seed for job in order[:grid]} == {SEEDS[0]}
    assert order[0].recipe != order[1].recipe
    places = {job: place for place, job in enumerate(order)}
    quick = [Job("muon-wsd", 3.2e-2, seed, SHORT_STEPS) for seed in SEEDS]
    trainer = min(place for job, place in places.items() if job.recipe == "transformers")
    assert grid < places[quick[0]] < places[quick[1]] < trainer < places[quick[2]]


def test_cada_receta_acaba_con_su_mejor_tasa_acotada_y_en_todas_las_semillas() -> None:
    losses = {job: invented_loss(job) for job in whole_study()}
    for recipe in RECIPES:
        rates = sorted({job.lr for job in losses if job.recipe == recipe})
        first = {lr: losses[Job(recipe, lr, SEEDS[0])] for lr in rates}
        best = min(first, key=first.__getitem__)
        assert best == _BEST.get(recipe, 8e-3)
        assert best in rates[1:-1]
        assert all(Job(recipe, best, seed) in losses for seed in SEEDS)
    assert all(Job("muon-wsd", 3.2e-2, seed, SHORT_STEPS) in losses for seed in SEEDS)


def test_la_confirmacion_acota_las_dos_mejores_y_acaba_con_la_corta(tmp_path: Path) -> None:
    order = whole_study("small")
    assert {job.seed for job in order} == {SEEDS[0]}
    for recipe in ("adamw-wsd", "muon-wsd"):
        rates = sorted({job.lr for job in order if job.recipe == recipe})
        assert _BEST[recipe] in rates[1:-1]
    assert Job("muon-wsd", _BEST["muon-wsd"], SEEDS[0], SHORT_STEPS) in order
    assert loss_study.size_name(tmp_path) == "study"
    (tmp_path / loss_study.SIZE).write_text("small\n", encoding="utf-8")
    assert loss_study.size_name(tmp_path) == "small"


def test_si_la_mejor_esta_en_un_extremo_se_prueba_la_de_fuera() -> None:
    grid = (1e-3, 2e-3)
    losses = {Job("muon-wsd", lr, 1): 1 / lr for lr in grid}
    jobs, best = bracket(losses, "muon-wsd", grid)
    assert (jobs[-1], best) == (Job("muon-wsd", 4e-3, 1), None)
    losses[jobs[-1]] = math.inf
    assert bracket(losses, "muon-wsd", grid)[1] == 2e-3


def test_lo_que_no_depende_de_lo_que_corre_se_adelanta() -> None:
    losses = {job: invented_loss(job) for job in whole_study()[:8]}
    left = pending(losses)
    assert left[0].recipe in ("adamw-wsd", "muon-wsd")
    assert any(job.recipe == "transformers" for job in left)
    assert all(job.steps == STEPS for job in left)


@pytest.mark.parametrize("done", [0, 8, 21])
def test_un_estudio_parado_donde_sea_sigue_igual(done: int, tmp_path: Path) -> None:
    order = whole_study()
    for job in order[:done]:
        append_record(tmp_path, record_of(job))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"recipe": "adamw-wsd", "lr": 0.0')
    ran = []
    while left := pending(read_losses(read_records(tmp_path))):
        append_record(tmp_path, record_of(left[0]))
        ran.append(left[0])
    assert [*order[:done], *ran] == order
    assert [job_of(record) for record in read_records(tmp_path)] == order


class FakeProcess:
    """Un proceso que al segundo vistazo ha acabado y apuntado lo suyo, o se ha roto."""

    def __init__(self, folder: Path, job: Job, returncode: int) -> None:
        self.returncode: int = returncode
        self._folder, self._job, self._looks = folder, job, 0

    def poll(self) -> int | None:
        self._looks += 1
        if self._looks < 2:
            return None
        if not self.returncode:
            append_record(self._folder, record_of(self._job))
        return self.returncode


@pytest.mark.parametrize("lanes", [1, 2])
def test_sweep_hace_lo_que_falta_y_no_insiste_con_lo_roto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    order = whole_study()
    bad = Job("transformers-warmup", _BEST["transformers"] * 2, SEEDS[0])
    for job in order[:20]:
        append_record(tmp_path, record_of(job))
    started: list[Job] = []
    monkeypatch.setattr(loss_study, "command", lambda _, job: job)
    monkeypatch.setattr(loss_study, "_POLL_SECONDS", 0)

    def start(job: Job, env: dict[str, str]) -> FakeProcess:
        assert env["OMP_NUM_THREADS"] == "1"
        started.append(job)
        return FakeProcess(tmp_path, job, 9 if job == bad else 0)

    monkeypatch.setattr(subprocess, "Popen", start)
    assert loss_study.sweep(tmp_path, lanes) == [bad]
    assert started.count(bad) == 1
    assert len(started) == len(set(started))
    done = {job_of(record) for record in read_records(tmp_path)}
    assert {job for job in order if job.recipe != bad.recipe} <= done


def test_lo_ya_apuntado_no_se_repite(tmp_path: Path) -> None:
    job = Job("adamw-wsd", 1e-3, 1)
    append_record(tmp_path, record_of(job))
    assert not loss_study.run_job(tmp_path, job)
    assert len(read_records(tmp_path)) == 1
