"""La orden `enlace` por fuera: ayuda, errores de una línea y nada pesado al importarla."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Project

COMMANDS = (
    "params",
    "check-params",
    "exp",
    "corpus",
    "status",
    "logs",
    "stop",
    "report",
    "unlock",
    "accept-code",
    "generate",
    "chat",
)


def test_la_ayuda_nombra_todas_las_ordenes(project: Project) -> None:
    text = project.ok("--help")
    for command in COMMANDS:
        assert f"  {command} " in text


@pytest.mark.parametrize("command", ["status", "report", "check-params", "logs"])
def test_fuera_de_un_proyecto_lo_dice_en_una_linea(
    project: Project, tmp_path: Path, command: str
) -> None:
    project.root = tmp_path
    assert "no está dentro de un proyecto ENLACE" in project.refused(command)


def test_funciona_desde_una_subcarpeta(project: Project) -> None:
    project.root /= "configs"
    assert project.ok("check-params") == "run demo: sin diferencias\n"


def test_en_otro_proceso_el_error_tambien_es_una_linea(project: Project) -> None:
    done = project.apart("params", "nada")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["nada"], ["logs", "--lines", "x"], []])
def test_un_uso_incorrecto_no_acaba_bien(project: Project, arguments: list[str]) -> None:
    done = project.apart(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_sin_modelo_generate_dice_como_tenerlo(project: Project) -> None:
    assert "make train" in project.refused("generate", "Había una vez")
    assert "make train" in project.refused("chat")


def test_importar_la_orden_no_importa_torch_ni_dvc() -> None:
    code = (
        "import sys, enlace.cli, enlace.config.load, enlace.workspace.runs\n"
        "print(sorted({'torch', 'dvc', 'numpy', 'transformers', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
