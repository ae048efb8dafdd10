"""Lo que dice el sistema llega al usuario en español: todo pasa por `fault_of` o `cause_of`."""

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enlace.errors import _MACHINE_FAULTS, cause_of, fault_of

_ROOT = Path(__file__).parents[1]
_SOURCES = sorted(
    path for folder in ("enlace", "stages") for path in (_ROOT / folder).rglob("*.py")
)
# Quien traduce, y quien busca en lo que dice el Hub de qué fallo se trata.
_EXEMPT = [_ROOT / "enlace/errors.py", _ROOT / "enlace/workspace/hub.py"]


def _raw_messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Dónde y cómo llega a un texto un `OSError` sin traducir: (línea, qué)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "strerror":
            if not (isinstance(node.value, ast.Name) and node.value.id == "os"):
                yield node.lineno, "strerror"
        elif isinstance(node, ast.ExceptHandler) and node.name and _mentions(node.type, "OSError"):
            yield from _shown(node, node.name)
        elif isinstance(node, ast.FunctionDef):
            for argument in node.args.args + node.args.kwonlyargs:
                if _mentions(argument.annotation, "OSError", "Exception"):
                    yield from _shown(node, argument.arg)


def _mentions(kind: ast.AST | None, *wanted: str) -> bool:
    names = {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)} if kind else set()
    return not names.isdisjoint(wanted)


def _shown(block: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Los `{name}` de una f-string y los `str(name)` de un bloque."""
    for node in ast.walk(block):
        if isinstance(node, ast.FormattedValue):
            value: ast.expr = node.value
        elif isinstance(node, ast.Call) and _is(node.func, "str") and node.args:
            value = node.args[0]
        else:
            continue
        if _is(value, name):
            yield node.lineno, ast.unparse(node)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@pytest.mark.parametrize(
    "source",
    [
        "print(error.strerror)",
        "try: f()\nexcept OSError as error: print(f'no: {error}')",
        "try: f()\nexcept (ValueError, OSError) as error: print(str(error))",
        "def g(fault: OSError) -> str: return f'{fault}'",
        "def g(fault: Exception) -> str: return str(fault)",
    ],
)
def test_el_examen_ve_cada_forma_de_ensenar_lo_que_dice_el_sistema(source: str) -> None:
    assert list(_raw_messages(ast.parse(source)))


def test_ningun_mensaje_ensena_lo_que_dice_el_sistema_sin_traducir() -> None:
    raw = [
        f"{path.relative_to(_ROOT)}:{line}: {what}"
        for path in _SOURCES
        if path not in _EXEMPT
        for line, what in _raw_messages(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert raw == []


@pytest.mark.parametrize("number", [*_MACHINE_FAULTS, errno.ENOENT])
def test_cada_fallo_se_dice_en_espanol_lo_cuente_python_o_rust(number: int) -> None:
    english = os.strerror(number)
    said = fault_of(OSError(number, english))
    assert english not in said
    told_by_rust = ValueError(f"I/O error: {english} (os error {number})")
    assert fault_of(told_by_rust) == said
    for error in (OSError(number, english), told_by_rust):
        cause = cause_of(error)
        assert said.startswith(cause)
        assert "; " not in cause


def test_lo_que_no_se_conoce_se_dice_como_llego() -> None:
    assert fault_of(OSError(errno.EXDEV, "otro disco", "a")) == "otro disco"
    assert fault_of(OSError("solo un texto")) == "solo un texto"
    assert fault_of(ValueError("cabecera corta")) == "cabecera corta"


def test_los_remedios_son_las_ordenes_del_readme() -> None:
    """Quien usa make no tiene por qué saber que debajo hay un `dvc pull` o un `dvc push`."""
    named = [
        f"{path.relative_to(_ROOT)}:{node.lineno}"
        for path in _SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and any(
            f"{order} " in f"{node.value} ".replace(")", " ") for order in ("dvc pull", "dvc push")
        )
    ]
    # La receta de `enlace reproduce` se sigue a mano y trae solo una carpeta.
    assert [place.partition(":")[0] for place in named] == ["enlace/lineage/reproduce.py"]
