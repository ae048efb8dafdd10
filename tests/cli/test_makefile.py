"""El Makefile: cada orden llama a lo que dice, avisa con una línea y no deja nada huérfano."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enlace.config.load import load_config

from .conftest import Project

WAITING_STAGE = '''\
"""Una etapa que espera hasta que la paran."""

import os
import time
from pathlib import Path

from enlace.process import StopSignal, die_with_parent

die_with_parent()
with StopSignal() as stop:
    Path("pid.tmp").write_text(str(os.getpid()))
    Path("pid.tmp").rename("pid")
    while stop.requested is None:
        time.sleep(0.02)
    Path("saved.tmp").write_text(str(stop.requested))
    Path("saved.tmp").rename("saved")
raise SystemExit(143)
'''


@pytest.fixture
def installed(project: Project) -> Project:
    """El proyecto con un .venv que parece recién instalado y usa este Python."""
    binaries = project.root / ".venv/bin"
    binaries.mkdir(parents=True)
    for name in ("python", "python3"):
        path = binaries / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        path.chmod(0o755)
    for stamp in (".enlace-light", ".enlace-dev"):
        (project.root / ".venv" / stamp).touch()
    return project


def _make(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return project.run("make", *arguments)


def _one_line(done: subprocess.CompletedProcess[str]) -> str:
    """La línea de enlace de una orden que falla (make añade la suya)."""
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("enlace: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.slow
def test_train_funciona_sin_almacen_remoto_y_con_el_run_pedido(installed: Project) -> None:
    remote = Path(installed.environment["HOME"]) / ".local/share/enlace/dvc"
    done = _make(installed, "train", "RUN=smoke", "SET=train.lr=1e-5 train.steps=70")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not remote.exists()
    config = load_config(installed.root / "params.yaml")
    assert (config.run_name, config.train.lr, config.train.steps) == ("smoke", 1e-5, 70)
    assert (installed.root / "output.txt").read_text() == "hola\n"
    assert not (installed.root / "seen.yaml").exists()  # evaluate no es cosa de train
    # En otra máquina, con el dvc.lock pero sin datos ni almacén, vuelve a ejecutar y acaba bien.
    for path in (installed.root / ".dvc/cache").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    installed.git("clean", "-xfd", "--quiet", "output.txt", ".dvc/cache")
    done = _make(installed, "train")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (installed.root / "output.txt").read_text() == "hola\n"


def test_train_no_pierde_cambios_de_params(installed: Project) -> None:
    installed.edit("params.yaml", "lr: 0.006", "lr: 0.007")
    assert "train.lr" in _one_line(_make(installed, "train", "RUN=demo"))
    assert load_config(installed.root / "params.yaml").train.lr == 0.007
    assert "SET necesita RUN" in _one_line(_make(installed, "train", "SET=train.lr=1"))


def test_la_demo_no_pisa_el_run_de_nadie(installed: Project) -> None:
    installed.ok("params", "smoke")
    assert "make params RUN=demo" in _one_line(_make(installed, "demo"))
    assert load_config(installed.root / "params.yaml").run_name == "smoke"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("params",), "falta RUN; ejemplo: make params RUN=demo"),
        (("exp",), "falta RUN; ejemplo: make exp RUN=demo"),
        (("train", "SET=train.lr=1"), "SET necesita RUN"),
        (("preflight", "SET=train.lr=1"), "SET necesita RUN"),
        (("entrena",), "no hay ninguna orden «entrena»; make help"),
        (("configs",), "no hay ninguna orden «configs»; make help"),
    ],
)
def test_lo_que_falta_se_pide_antes_de_instalar(
    project: Project, arguments: tuple[str, ...], said: str
) -> None:
    assert said in _one_line(_make(project, *arguments))
    assert not (project.root / ".venv").exists()


@pytest.mark.slow
def test_preflight_con_run_solo_estima(installed: Project) -> None:
    done = _make(installed, "preflight", "RUN=smoke", "SET=model.n_layer=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ESTIMACIÓN, no medida" in done.stdout
    folder = installed.root / "reports/preflight"
    assert sorted(path.name for path in folder.iterdir()) == [
        "estimate-smoke.json",
        "estimate-smoke.svg",
    ]
    assert not (installed.root / ".enlace/preflight").exists()
    assert "SET necesita RUN" in _one_line(_make(installed, "preflight", "SET=train.lr=1"))


def test_preflight_busca_el_micro_batch_si_se_pide(installed: Project) -> None:
    (installed.root / "stages/preflight.py").write_text("import sys\nprint(*sys.argv[1:])\n")
    assert _make(installed, "preflight", "SEARCH=1").stdout == "--search\n"
    assert "SEARCH" in _one_line(_make(installed, "preflight", "SEARCH=1", "RUN=smoke"))


@pytest.mark.slow
def test_corpus_acepta_una_ruta_con_espacios_y_comillas(installed: Project, tmp_path: Path) -> None:
    source = tmp_path / 'L\'ànima dels "textos"'
    source.mkdir()
    (source / "uno.txt").write_text("uno\n")
    done = _make(installed, "corpus", f"SRC={source}")
    assert done.returncode == 0, done.stderr
    assert (installed.root / "data/raw" / source.name / "uno.txt").read_text() == "uno\n"


def test_fuera_de_git_lo_dice(installed: Project) -> None:
    (installed.root / ".git").rename(installed.root / "no-git")
    for stamp in (".enlace-light", ".enlace-dev"):
        (installed.root / ".venv" / stamp).unlink()
    assert "git clone" in _one_line(_make(installed, "setup"))


def _fake_python(folder: Path, version_ok: bool, venv_ok: bool) -> Path:
    path = folder / "python-falso"
    path.write_text(
        "#!/bin/sh\n"
        f'case "$2" in *version_info*) exit {0 if version_ok else 1};; '
        f"*ensurepip*) exit {0 if venv_ok else 1};; esac\nexit 9\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version_ok", "venv_ok", "said"),
    [(False, True, "anterior a 3.11"), (True, False, "le falta venv")],
)
def test_un_python_que_no_sirve_se_explica(
    project: Project, tmp_path: Path, version_ok: bool, venv_ok: bool, said: str
) -> None:
    python = _fake_python(tmp_path, version_ok, venv_ok)
    assert said in _one_line(_make(project, "setup", f"PYTHON={python}"))
    assert not (project.root / ".venv").exists()


def test_setup_instala_una_vez_por_cambio(installed: Project) -> None:
    # pip se sustituye por un contador: lo que se prueba es cuándo se le llama.
    calls = installed.root / "llamadas"
    python = installed.root / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    stamps = [installed.root / ".venv" / name for name in (".enlace-light", ".enlace-dev")]
    for stamp in stamps:
        stamp.unlink()

    def installs() -> list[str]:
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line for line in lines if " install " in line]

    assert _make(installed, "setup").returncode == 0
    assert _make(installed, "setup").returncode == 0
    assert len(installs()) == 1
    assert "--constraint .constraints.txt --editable ." in installs()[0]
    assert _make(installed, "setup-dev").returncode == 0
    assert installs()[1].endswith("--editable .[dev]")
    assert _make(installed, "setup").returncode == 0
    assert len(installs()) == 2  # el de desarrollo ya incluye el ligero
    future = time.time() + 10
    os.utime(installed.root / ".constraints.txt", (future, future))
    assert _make(installed, "setup").returncode == 0
    assert len(installs()) == 3


def test_dos_ordenes_a_la_vez_instalan_una_sola_vez(installed: Project) -> None:
    calls = installed.root / "llamadas"
    python = installed.root / ".venv/bin/python"
    # El primero no acaba hasta que el segundo ha dicho que espera.
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\ncase "$*" in *" install "*)\n'
        f"while ! grep -q espero {installed.root}/segundo; do sleep 0.05; done;; esac\n"
    )
    for stamp in (".enlace-light", ".enlace-dev"):
        (installed.root / ".venv" / stamp).unlink()

    def start(name: str) -> subprocess.Popen[bytes]:
        with (installed.root / name).open("wb") as output:
            return subprocess.Popen(
                ["make", "setup"],
                cwd=installed.root,
                env=installed.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    with start("primero") as first:
        _wait_for(calls)
        with start("segundo") as second:
            assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)
    assert calls.read_text().count(" install ") == 1
    assert "otra orden está instalando" in (installed.root / "segundo").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_matar_make_para_el_entrenamiento_y_este_guarda(
    installed: Project, number: signal.Signals
) -> None:
    (installed.root / "stages/short.py").write_text(WAITING_STAGE, encoding="utf-8")
    make = subprocess.Popen(
        ["make", "train"],
        cwd=installed.root,
        env=installed.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        pid = int(_wait_for(installed.root / "pid"))
        make.send_signal(number)  # solo a make: ni a DVC ni al entrenamiento
        make.wait(timeout=60)
        assert _wait_for(installed.root / "saved") == str(int(signal.SIGTERM))
        _wait_until_gone(pid)
    finally:
        if make.poll() is None:
            os.killpg(make.pid, signal.SIGKILL)
            make.wait()


def _wait_for(path: Path) -> str:
    for _ in range(600):
        if path.exists():
            return path.read_text()
        time.sleep(0.1)
    raise AssertionError(f"{path} no llegó a existir")


def _wait_until_gone(pid: int) -> None:
    for _ in range(600):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().split(")")[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError(f"el proceso {pid} sigue vivo")


def test_corpus_sin_src_dice_que_no_hay_nada_que_descargar(installed: Project) -> None:
    assert "data.downloads está vacío" in _one_line(_make(installed, "corpus"))
