"""`enlace accept-code`: solo se acepta lo que de verdad no cambia nada."""

import hashlib
import shutil
from pathlib import Path

import pytest

from enlace.config.yaml_io import read_yaml

from .conftest import Project, make_project

STAGE = "stages/short.py"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """El proyecto después de ejecutar su tubería y guardarla en git; se copia en cada prueba."""
    made = make_project(tmp_path_factory.mktemp("template"))
    made.dvc("repro", "--quiet")
    made.commit("ejecutado")
    return made


@pytest.fixture
def trained(template: Project, tmp_path: Path) -> Project:
    """Una copia propia del proyecto ejecutado."""
    shutil.copytree(template.root, tmp_path / "project", symlinks=True)
    (tmp_path / "home").mkdir()
    return Project(tmp_path / "project", tmp_path / "home")


def _outputs(project: Project) -> object:
    stages = read_yaml(project.root / "dvc.lock")["stages"]
    return {name: stage["outs"] for name, stage in stages.items()}


@pytest.mark.slow
def test_comentarios_docstrings_y_formato_se_aceptan_sin_ejecutar(trained: Project) -> None:
    before = _outputs(trained)
    trained.edit(STAGE, '"""Una etapa corta."""', '"""Otra explicación,\n\nmás larga."""')
    trained.edit(STAGE, "  # una copia", "")
    trained.edit(STAGE, "read_text())", "read_text(),\n    )")
    text = trained.ok("accept-code")
    assert text == f"pretrain: aceptado ({STAGE})\n"
    assert trained.dvc("status", "--json").strip() == "{}"
    assert _outputs(trained) == before
    assert "nada que aceptar" in trained.ok("accept-code")


def test_un_cambio_de_codigo_se_rechaza_y_no_se_apunta(trained: Project) -> None:
    lock = (trained.root / "dvc.lock").read_bytes()
    trained.edit(STAGE, "read_text())", "read_text().upper())")
    message = trained.refused("accept-code")
    assert STAGE in message
    assert "cambia más que" in message
    assert (trained.root / "dvc.lock").read_bytes() == lock


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("params.yaml", "lr: 0.006", "lr: 0.004", "params.yaml"),
        pytest.param("input.txt", "hola", "adiós", "input.txt", marks=pytest.mark.slow),
        pytest.param(
            "dvc.yaml",
            "exec python -m stages.short",
            "exec python  -m stages.short",
            "la orden",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "dvc.yaml",
            "stages/short.py, input",
            "stages/short.py, stages/start.py, input",
            "start.py",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_si_cambio_algo_mas_se_rechaza(
    trained: Project, name: str, old: str, new: str, said: str
) -> None:
    lock = (trained.root / "dvc.lock").read_bytes()
    trained.edit(STAGE, "Una etapa corta", "Otra docstring")
    trained.edit(name, old, new)
    assert said in trained.refused("accept-code")
    assert (trained.root / "dvc.lock").read_bytes() == lock


def test_sin_el_codigo_que_se_ejecuto_en_git_se_rechaza(trained: Project) -> None:
    # Como si se hubiera ejecutado una versión que nunca llegó a un commit.
    saved = hashlib.md5((trained.root / STAGE).read_bytes(), usedforsecurity=False).hexdigest()
    trained.edit("dvc.lock", saved, "abcdef01" * 4)
    message = trained.refused("accept-code")
    assert STAGE in message
    assert "historia de git" in message


@pytest.mark.slow
def test_la_version_ejecutada_puede_estar_muchos_commits_atras(trained: Project) -> None:
    for word in ("Segunda", "Tercera"):
        text = (trained.root / STAGE).read_text(encoding="utf-8")
        (trained.root / STAGE).write_text(f'"""{word}."""\n' + text.split("\n", 1)[1])
        trained.commit(word)
    assert "aceptado" in trained.ok("accept-code")


def test_sin_nada_ejecutado_no_hay_nada_que_aceptar(project: Project) -> None:
    assert "nada que aceptar" in project.ok("accept-code")


def test_un_rwlock_danado_remite_a_unlock(trained: Project) -> None:
    (trained.root / ".dvc/tmp/rwlock").write_bytes(b"")
    assert "make unlock" in trained.refused("accept-code")
