"""`status`, `logs`, `stop` y `report`: qué se cuenta de cada run y a quién se para."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enlace.config.load import load_config, resolve
from enlace.files import write_text
from enlace.process import exclusive_lock
from enlace.progress import COLUMNS
from enlace.workspace.control import follow, tail
from enlace.workspace.runs import list_runs, lock_holder, summarize

from .conftest import ROOT, Project

TRAINER = """\
import sys, time
from pathlib import Path
from enlace.process import StopSignal, exclusive_lock
folder = Path(sys.argv[1])
with StopSignal() as stop, exclusive_lock(folder / "lock"):
    print("listo", flush=True)
    while stop.requested is None:
        time.sleep(0.02)
    sys.path.insert(0, sys.argv[2])
    from tests.cli.test_runs import write_checkpoint
    write_checkpoint(folder, 7, {"train": {"steps": 20}}, "x")
sys.exit(143)
"""


def write_checkpoint(folder: Path, step: int, config: dict[str, Any], identity: str) -> Path:
    """Escribe lo que `status` mira de un checkpoint."""
    path = folder / "checkpoints" / f"step_{step:08d}"
    path.mkdir(parents=True)
    content = json.dumps({"step": step, "identity": identity, "config": config}).encode()
    (path / "state.json").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (path / "state.sha256").write_text(f"{digest}  state.json\n")
    return path


def _row(step: int, loss: float, val_loss: float | None = None) -> str:
    values = {
        "step": step,
        "tokens": step * 100,
        "loss": loss,
        "lr": 0.003,
        "grad_norm": 1.5,
        "scale": 1.0,
        "skipped": 0,
        "spikes": 0,
        "tokens_per_second": 1000.0,
        "batch": "0" * 16,
        "val_loss": val_loss,
    }
    cells = ("" if values[column] is None else str(values[column]) for column in COLUMNS)
    return "\t".join(cells) + "\n"


def _table(folder: Path, *rows: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "train.tsv"
    path.write_text("\t".join(COLUMNS) + "\n" + "".join(rows))
    return path


@pytest.fixture
def folder(project: Project) -> Path:
    """Un run de la demo a medias, con su enlace."""
    runs = project.root / "runs"
    folder = runs / f"demo-{'a' * 16}"
    _table(folder, _row(10, 5.0, 5.5), _row(20, 4.25), "30\t")
    config = resolve("demo", [], ROOT)
    write_checkpoint(folder, 20, config.model_dump(mode="json"), config.identity())
    (runs / "demo").symlink_to(folder.name)
    return folder


@pytest.fixture
def trainer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Un proceso que tiene el cerrojo y, al recibir SIGTERM, guarda el paso 7."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(folder), str(ROOT)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "listo\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_un_run_a_medias_se_cuenta_entero(project: Project, folder: Path) -> None:
    summary = summarize(folder)
    assert (summary.step, summary.steps, summary.logged_step) == (20, 150, 20)
    assert (summary.loss, summary.val_loss, summary.holder) == (4.25, 5.5, None)
    assert not summary.finished
    text = project.ok("status")
    assert "run demo\n" in text
    assert "checkpoint 20/150" in text
    assert "pérdida 4,2500, validación 5,5000" in text
    assert f"make train: seguir demo-{'a' * 16} desde el paso 20 de 150" in text


def test_un_checkpoint_danado_se_nombra_y_vale_el_anterior(project: Project, folder: Path) -> None:
    bad = write_checkpoint(folder, 30, {"train": {"steps": 150}}, "x")
    (bad / "state.json").write_text("{}")
    (folder / "checkpoints/.tmp-step_00000040-x").mkdir()
    summary = summarize(folder)
    assert (summary.step, summary.damaged) == (20, ("step_00000030",))
    assert "step_00000030 está dañado" in project.ok("status")


def test_los_pasos_se_ordenan_como_numeros(folder: Path) -> None:
    write_checkpoint(folder, 123456789, {}, "x")  # nueve cifras: «1234…» < «9999…» como texto
    write_checkpoint(folder, 99999999, {}, "x")
    assert summarize(folder).step == 123456789


def test_con_otra_receta_se_empieza_de_cero(project: Project, folder: Path) -> None:
    project.edit("params.yaml", "lr: 0.006", "lr: 0.004")
    text = project.ok("status")
    assert "(1 cambio: `make check-params`)" in text
    assert "empezar el run demo desde cero (150 pasos)" in text
    project.edit("params.yaml", "lr: 0.004", "lr: 0.006")
    project.edit("params.yaml", "log_every: 10", "log_every: 5")  # operativo: es el mismo run
    assert "seguir demo-" in project.ok("status")


def test_un_run_terminado_lo_dice(project: Project, folder: Path) -> None:
    config = load_config(project.root / "params.yaml")
    write_checkpoint(folder, 150, config.model_dump(mode="json"), config.identity())
    assert "nada que entrenar" in project.ok("status")
    assert "terminado" in project.ok("report")


def test_un_params_danado_no_impide_ver_los_runs(project: Project, folder: Path) -> None:
    (project.root / "params.yaml").write_text("run_name: [")
    text = project.ok("status")
    assert "no es YAML" in text
    assert "checkpoint 20/150" in text


def test_sin_runs_lo_dice(project: Project) -> None:
    assert "ningún entrenamiento ha empezado" in project.ok("status")
    assert "ningún entrenamiento ha empezado" in project.ok("report")
    assert "no ha empezado" in project.refused("logs")
    assert "elige en configs/runs" in project.refused("logs", "nada")
    assert project.ok("stop") == "no hay ningún entrenamiento en marcha\n"


def test_report_compara_y_no_escribe(project: Project, folder: Path) -> None:
    other = project.root / "runs" / f"smoke-{'b' * 16}"
    _table(other, _row(5, 2.0))
    before = project.git("status", "--porcelain", "--ignored")
    lines = project.ok("report").splitlines()
    assert lines[0].split() == [
        "run", "clave", "paso", "pérdida", "validación", "estado", "fecha",
    ]  # fmt: skip
    rows = {line.split()[0]: line.split() for line in lines[1:]}
    assert rows["demo"][1:5] == ["a" * 16, "20/150", "4,2500", "5,5000"]
    assert rows["smoke"][1:5] == ["b" * 16, "ninguno", "2,0000", "–"]
    assert project.git("status", "--porcelain", "--ignored") == before


def test_lo_que_no_es_un_run_no_se_cuenta(project: Project, folder: Path) -> None:
    (project.root / "runs/otra-cosa").mkdir()
    (project.root / "runs/suelto.txt").write_text("x")
    assert [summary.folder for summary in list_runs(project.root)] == [folder]


def test_logs_muestra_las_ultimas_filas_completas(project: Project, folder: Path) -> None:
    lines = project.ok("logs", "-n", "1").splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("paso 20/150 · pérdida 4,2500")
    assert len(project.ok("logs", "demo").splitlines()) == 2
    assert project.ok("logs", "-n", "0") == ""


def test_logs_follow_sigue_tambien_tras_reanudar(folder: Path) -> None:
    table = folder / "train.tsv"
    rows, end = tail(table, 1)
    assert rows == [_row(20, 4.25).rstrip("\n")]
    tenth, twentieth, thirtieth = _row(10, 5.0, 5.5), _row(20, 4.25), _row(30, 3.5)

    def append(text: str) -> None:
        with table.open("a") as stream:
            stream.write(text)

    def replace() -> None:
        write_text(table, "\t".join(COLUMNS) + "\n" + tenth)

    steps = [
        lambda: append(thirtieth.removeprefix("30\t")[:5]),  # la línea sigue a medias
        lambda: append(thirtieth.removeprefix("30\t")[5:] + "40"),
        replace,  # se reanuda desde el paso 10: otro fichero, más corto
        lambda: None,
        lambda: append(twentieth + thirtieth),
    ]
    following = follow(table, end, lambda: steps.pop(0)())
    assert [next(following) for _ in range(3)] == [
        row.rstrip("\n") for row in (thirtieth, twentieth, thirtieth)
    ]
    assert steps == []


def test_logs_follow_ensena_lo_que_hay_antes_de_esperar(project: Project, folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "enlace.cli", "logs", "--follow", "-n", "1"],
        cwd=project.root,
        env=project.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        killer = threading.Timer(60, process.kill)
        killer.start()
        assert process.stdout.readline().startswith("paso 20/")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        killer.cancel()


def test_el_cerrojo_dice_quien_lo_tiene_y_solo_mientras_lo_tiene(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert lock_holder(lock) is None
    with exclusive_lock(lock):
        holder = lock_holder(lock)
        assert holder is not None
        assert holder.pid > 0
    # El registro sigue escrito y el proceso sigue vivo, pero ya no lo tiene.
    assert json.loads(lock.read_text())["pid"] == holder.pid
    assert lock_holder(lock) is None
    lock.write_text("basura")
    assert lock_holder(lock) is None


def test_status_dice_quien_entrena(project: Project, trainer: subprocess.Popen[str]) -> None:
    text = project.ok("status")
    assert re.search(
        rf"lo usa el proceso {trainer.pid} de .+ desde \d{{4}}-\d\d-\d\d \d\d:\d\d\n", text
    )
    assert "esperar" in text


def test_stop_espera_a_que_guarde_y_dice_el_paso(
    project: Project, folder: Path, trainer: subprocess.Popen[str]
) -> None:
    (folder / "checkpoints/step_00000020").rename(folder / "checkpoints/step_00000002")
    text = project.ok("stop")
    assert "guardado en el paso 7 de 20" in text
    assert trainer.wait(timeout=30) == 143
    assert project.ok("stop") == "no hay ningún entrenamiento en marcha\n"


def test_con_varios_en_marcha_hay_que_decir_cual(
    project: Project, trainer: subprocess.Popen[str]
) -> None:
    assert "elige en configs/runs" in project.refused("stop", "dmeo")
    assert project.ok("stop", "small") == "el run small no se está entrenando\n"
    with exclusive_lock(project.root / "runs" / f"smoke-{'b' * 16}" / "lock"):
        assert "di cuál" in project.refused("stop")
        assert trainer.poll() is None
        assert "guardado en el paso" in project.ok("stop", "demo")
