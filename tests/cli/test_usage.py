"""Un uso incorrecto de `enlace` se dice en español, en una línea y con la ayuda a mano."""

import inspect
import re
from pathlib import Path

import pytest
import typer

from enlace.cli import app

from .conftest import Project

MISTAKES = {
    "generat x": "no hay ninguna orden «generat»; ¿querías decir «generate»?",
    "statu": "no hay ninguna orden «statu»; ¿querías decir «status» o «estimate»?",
    "zzz": "no hay ninguna orden «zzz»",
    "generate": "falta TEXTO",
    "generate x --foo": "no hay ninguna opción --foo",
    "generate x --sed": "no hay ninguna opción --sed; están --seed",
    "generate x --seed a": "--seed debe ser un entero",
    "generate x --seed -1": "--seed debe ser 0 o más",
    "generate x --temperature a": "--temperature debe ser un número",
    "generate x --model": "a --model le falta su valor",
    "stop a b": "sobra «b»",
    "prune --yes=1": "--yes no lleva valor",
}
ENGLISH = re.compile(
    r"\b(?:Usage|Options|Arguments|Commands|Show this|required|default|range|OPTIONS|ARGS|Error)\b"
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Fuera de todo proyecto: un uso incorrecto se dice antes de buscarlo."""
    return Project(tmp_path, tmp_path)


@pytest.mark.parametrize("arguments", MISTAKES)
def test_un_uso_incorrecto_se_dice_en_espanol(project: Project, arguments: str) -> None:
    line = project.refused(*arguments.split())
    assert line.startswith(f"enlace: {MISTAKES[arguments]}; `enlace")
    assert line.endswith("--help` dice cómo se usa")


def test_ninguna_ayuda_lleva_ingles(project: Project) -> None:
    orders = [info.name for info in _visible() if info.name]
    for arguments in [[], *([order] for order in orders)]:
        text = project.ok(*arguments, "--help")
        assert text.startswith(" ".join(["Uso: enlace", *arguments]))
        assert ENGLISH.search(text) is None, text


def test_la_ayuda_dice_entero_lo_que_hace_cada_orden(project: Project) -> None:
    text = " ".join(project.ok("--help").split())
    assert "..." not in text
    for info in _visible():
        assert info.callback is not None
        first = inspect.cleandoc(info.callback.__doc__ or "").partition("\n\n")[0]
        assert " ".join(first.split()) in text


def test_a_solas_ensena_la_ayuda(project: Project) -> None:
    done = project.enlace()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == project.ok("--help")


def _visible() -> list[typer.models.CommandInfo]:
    return [info for info in app.registered_commands if not info.hidden]
