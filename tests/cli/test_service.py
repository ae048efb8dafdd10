"""`enlace service`: una unidad que systemd entiende y que solo repite lo que repetir arregla."""

import shutil
import subprocess
from pathlib import Path

import pytest

from enlace.errors import ConfigError, EnlaceError, TrainingAbortedError, user_errors
from enlace.process import EXIT_FILE, noted_exit
from enlace.workspace.service import run_service, unit_text

from .conftest import Project

ODD = "mi proyecto 100% $HOME \"raro\" \\ 'así'"


def fields(text: str) -> dict[str, str]:
    lines = [line.partition("=") for line in text.splitlines() if line[:1] != "#"]
    return {key: value for key, _, value in lines}


def test_cada_codigo_se_repite_o_no() -> None:
    unit = fields(unit_text("demo", Path("/p"), Path("/p/python")))
    assert unit["RestartPreventExitStatus"] == "2 3"
    assert (EnlaceError.exit_code, TrainingAbortedError.exit_code) == (2, 3)
    assert unit["SuccessExitStatus"] == "75 129 130 143"
    assert unit["Restart"] == "on-failure"
    assert unit["WantedBy"] == "default.target"


def test_una_ruta_rara_llega_entera() -> None:
    unit = fields(unit_text("demo", Path("/a b/100%"), Path('/a "b"/$x\\y/100%/python')))
    assert unit["WorkingDirectory"] == "/a b/100%%"
    assert unit["ExecStart"].startswith(
        r':/usr/bin/env "/a \"b\"/$x\\y/100%%/python" -m enlace.cli service-run'
    )


@pytest.mark.parametrize("path", ["/a\nExecStart=/bin/x", "/a\tb", "/a "])
def test_una_ruta_imposible_se_rechaza(path: str) -> None:
    with pytest.raises(ConfigError, match="systemd no admite"):
        unit_text("demo", Path(path), Path("/python"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no hay systemd")
def test_systemd_la_da_por_buena(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    python = folder / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    unit = tmp_path / "enlace-demo.service"
    unit.write_text(unit_text("demo", folder, python), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert str(unit.name) not in done.stderr, done.stderr


def test_se_escribe_se_dice_como_activarla_y_se_quita(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    unit = tmp_path / "config/systemd/user/enlace-demo.service"
    said = project.ok("service")
    assert fields(unit.read_text(encoding="utf-8"))["WorkingDirectory"] == str(
        project.root.resolve()
    )
    for words in ("enable --now enlace-demo.service", "enable-linger", "daemon-reload"):
        assert words in said
    assert "make params RUN=smoke" in project.refused("service", "smoke")
    project.ok("service", "--remove")
    assert not unit.exists()
    assert "no hay nada que quitar" in project.ok("service", "--remove")


def test_la_etapa_deja_su_codigo_y_solo_si_falla(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXIT_FILE, str(tmp_path / "exit"))
    with noted_exit(), user_errors():
        pass
    assert not (tmp_path / "exit").exists()
    with pytest.raises(SystemExit), noted_exit(), user_errors():
        raise TrainingAbortedError("diverge", reason="pico", first=1, last=2)
    assert (tmp_path / "exit").read_text() == "3"


@pytest.mark.parametrize(("written", "dvc", "code"), [("3", 255, 3), (None, 255, 255), ("3", 0, 0)])
def test_el_servicio_sale_con_el_codigo_de_la_etapa(
    written: str | None, dvc: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(*_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess[bytes]:
        if written:
            Path(env[EXIT_FILE]).write_text(written)
        return subprocess.CompletedProcess([], dvc)

    module = "enlace.workspace.service"
    monkeypatch.setattr(f"{module}.subprocess.run", fake)
    monkeypatch.setattr(f"{module}.require_run", lambda *_: [])
    monkeypatch.setattr(f"{module}.unlock", lambda *_: None)
    with pytest.raises(SystemExit) as caught:
        run_service("demo", Path())
    assert caught.value.code == code
