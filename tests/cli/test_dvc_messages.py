"""Lo que DVC dice en inglés se explica en español, y `runs/<run>` señala el run de params.yaml."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from enlace.config.load import resolve
from enlace.workspace import dvc_cli
from enlace.workspace.dvc_cli import explain, point_to_current
from enlace.workspace.dvclock import dvc_above, dvc_processes, wait_until_gone

from .conftest import ROOT, Project

ERRORS = {
    "failed to reproduce 'pretrain': failed to run: exec python -m x, exited with 143": (
        "la etapa pretrain ha parado antes de acabar; repite la orden y sigue donde iba"
    ),
    "failed to reproduce 'pretrain': failed to run: exec python -m x, exited with -9": (
        "la etapa pretrain ha muerto por la señal 9"
    ),
    "failed to reproduce 'corpus': failed to run: exec python -m x, exited with 2": (
        "la etapa corpus no ha acabado; el motivo y el remedio están justo encima"
    ),
    "failed to reproduce 'corpus': [Errno 2] No such file or directory: '/a/data/raw'": (
        "make corpus SRC="
    ),
    "failed to reproduce 'x': dependency 'enlace/otro.py' does not exist": "falta enlace/otro.py",
    "Unable to acquire lock": "make status",
    "failed to reproduce 'preflight': 'reports/x' is busy, it is being blocked by:\n  (PID 9): dvc"
    "\n\nIf there are no processes with such PIDs, you can manually remove '.dvc/tmp/rwlock' and "
    "try again.": "hay otro DVC en marcha",
    "Unable to read RWLock-file '.dvc/tmp/rwlock'. JSON structure is corrupted": "make unlock",
    "RWLock-file '.dvc/tmp/rwlock' format error.": "make unlock",
    "'./dvc.lock' validation failed: expected a dictionary.": "git checkout dvc.lock",
    "failed to pull data from the cloud - Checkout failed for following targets:": "make push",
    "unexpected error: Git user name and email must be configured": "git config user.name",
    "failed to reproduce 'preflight': [Errno 13] Permission denied: '/a/reports/v.json'": (
        "/a/reports/v.json: no tienes permiso; revisa los permisos y el dueño"
    ),
    "unexpected error - [Errno 13] Permission denied: 'params.yaml'": (
        "params.yaml: no tienes permiso"
    ),
    "failed to pull data from the cloud - [Errno 28] No space left on device": (
        "no queda sitio en el disco; libera espacio y repite la orden"
    ),
    "something new": "DVC ha fallado",
}


@pytest.mark.parametrize("error", ERRORS)
def test_cada_error_de_dvc_dice_que_pasa_y_que_hacer(error: str) -> None:
    assert ERRORS[error] in explain(error)


@pytest.mark.slow
def test_la_linea_va_delante_del_error_de_dvc(project: Project) -> None:
    (project.root / ".dvc/tmp").mkdir(parents=True)
    (project.root / ".dvc/tmp/rwlock").write_bytes(b"")
    done = project.apart("repro", "pretrain")
    lines = done.stderr.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("enlace: "))
    assert done.returncode != 0
    assert "make unlock" in lines[first]
    assert lines[first + 1].startswith("ERROR: ")


@pytest.mark.parametrize("order", ["push", "pull"])
def test_sin_nada_apuntado_no_se_llama_a_dvc(project: Project, order: str) -> None:
    done = project.run(sys.executable, "-m", "enlace.workspace.dvc_cli", order)
    assert done.returncode == 2
    assert done.stderr.startswith("enlace: ")
    assert len(done.stderr.splitlines()) == 1


def test_sin_texto_se_dice_antes_de_medir_nada(project: Project) -> None:
    project.ok("params", "small")
    assert "make corpus SRC=" in project.refused("repro", "pretrain")


def test_el_enlace_vuelve_al_run_de_params(project: Project) -> None:
    runs = project.root / "runs"
    for key, settings in (("a" * 16, []), ("b" * 16, ["train.lr=0.5"])):
        config = resolve("demo", settings, ROOT)
        path = runs / f"demo-{key}" / "checkpoints/step_00000400"
        path.mkdir(parents=True)
        content = json.dumps({"step": 400, "identity": config.identity()}).encode()
        (path / "state.json").write_bytes(content)
        (path / "state.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  state.json\n")
    (runs / "demo").symlink_to(f"demo-{'b' * 16}")
    point_to_current(project.root)
    assert (runs / "demo").readlink() == Path(f"demo-{'a' * 16}")


@pytest.mark.parametrize(
    ("arguments", "code", "moves"),
    [
        (["repro", "pretrain"], 0, True),
        (["exp", "run", "--temp"], 0, True),
        (["exp", "run", "--temp"], 1, False),
        (["status"], 0, False),
    ],
)
def test_el_enlace_vuelve_al_acabar_bien_un_run_o_un_experimento(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, moves: bool
) -> None:
    moved: list[Path] = []
    monkeypatch.setattr("dvc.cli.main", lambda _: code)
    monkeypatch.setattr(dvc_cli, "point_to_current", moved.append)
    monkeypatch.setattr("sys.argv", ["dvc", *arguments])
    with pytest.raises(SystemExit) as ended:
        dvc_cli.main()
    assert (ended.value.code, moved) == (code, [Path()] * moves)


def test_sin_run_de_esa_receta_el_enlace_no_se_toca(project: Project) -> None:
    runs = project.root / "runs"
    (runs / f"demo-{'b' * 16}").mkdir(parents=True)
    (runs / "demo").symlink_to(f"demo-{'b' * 16}")
    point_to_current(project.root)
    assert (runs / "demo").readlink() == Path(f"demo-{'b' * 16}")


def test_con_un_modelo_traido_no_se_promete_empezar(project: Project) -> None:
    config = resolve("demo", [], ROOT)
    model = project.root / "checkpoints/model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(config.model_dump(mode="json")))
    assert "nada que entrenar" in project.ok("status")
    project.edit("params.yaml", "lr: 0.006", "lr: 0.004")
    assert "empezar el run demo desde cero" in project.ok("status")


def test_se_espera_al_dvc_que_lanzo_el_entrenamiento(tmp_path: Path) -> None:
    child = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    code = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {child!r}])"
    launcher = subprocess.Popen(
        ["dvc", "-c", code],
        executable=sys.executable,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = launcher.stdin, launcher.stdout
    assert stdin is not None
    assert stdout is not None
    try:
        trainer = int(stdout.readline())
        assert dvc_above(trainer, tmp_path) == [launcher.pid]
        glances: list[int] = []

        def finish() -> None:
            glances.append(1)
            if not stdin.closed:
                stdin.close()
                launcher.wait()

        wait_until_gone([launcher.pid], tmp_path, finish)
        assert glances == [1]
        assert dvc_processes(tmp_path) == []
    finally:
        launcher.kill()
        launcher.wait()
        stdin.close()
        stdout.close()


def test_stop_dice_que_dvc_va_por_otra_etapa(project: Project) -> None:
    busy = subprocess.Popen(
        ["dvc", "-c", "print(flush=True); input()"],
        executable=sys.executable,
        cwd=project.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert busy.stdout is not None
    busy.stdout.readline()
    try:
        assert project.ok("stop") == (
            f"no hay ningún entrenamiento en marcha; DVC (proceso {busy.pid}) va por otra etapa: "
            "córtala con Ctrl-C\n"
        )
    finally:
        busy.communicate(b"\n")
    assert project.ok("stop") == "no hay ningún entrenamiento en marcha\n"
