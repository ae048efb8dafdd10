"""Las páginas de `docs/` frente al repositorio: enlaces, ficheros, pruebas y dependencias."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.support_pages import (
    ROOT,
    anchors,
    defined_targets,
    links,
    make_targets,
    pages,
    prose,
    read,
)

_IDS = [page.name for page in pages()]
_QUOTED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_QUOTED_FILE = re.compile(
    r"`((?:enlace|stages|configs|tests|docs)/[\w/.-]+|(?:dvc|params|pyproject)\.(?:yaml|toml))`"
)
_PACKAGE = re.compile(r"^[\w.-]+")


@pytest.mark.parametrize("page", pages(), ids=_IDS)
def test_todo_enlace_interno_lleva_a_algun_sitio(page: Path) -> None:
    broken = []
    for link in links(read(page)):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(read(target))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("name", ["README.md", "README.en.md"])
def test_desde_la_portada_se_llega_a_cada_pagina(name: str) -> None:
    _, found, table = read(ROOT / name).partition("| `docs/` |")
    assert found
    row = set(links(table.partition("\n")[0]))
    assert row == {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("page", pages(), ids=_IDS)
def test_toda_prueba_citada_existe(page: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in _QUOTED_TEST.findall(read(page))
        if name not in _functions(ROOT / file)
    ]
    assert not missing


@pytest.mark.parametrize("page", pages(), ids=_IDS)
def test_todo_fichero_citado_existe(page: Path) -> None:
    missing = [
        name for name in _QUOTED_FILE.findall(prose(read(page))) if not (ROOT / name).exists()
    ]
    assert not missing


# El plan nombra órdenes que aún no existen: de eso trata.
@pytest.mark.parametrize(
    "page", [page for page in pages() if page.name != "PLAN.md"], ids=lambda page: page.name
)
def test_toda_orden_de_make_existe(page: Path) -> None:
    assert make_targets(read(page)) <= defined_targets()


def test_las_dependencias_explicadas_son_las_del_proyecto() -> None:
    text = read(ROOT / "docs" / "dependencies.md")
    used, _, discarded = text.partition("## Lo que se miró y no se usa")
    assert discarded
    explained = re.findall(r"^\| (?:`(?:hf|s3|ssh|bench)` \| )?`([\w.-]+)` \|", used, re.MULTILINE)
    project: dict[str, Any] = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    declared = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        declared += extra
    assert sorted(explained) == sorted(_name(requirement) for requirement in declared)


def _name(requirement: str) -> str:
    match = _PACKAGE.match(requirement)
    assert match
    return match.group()


def _functions(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    tree = ast.parse(read(path))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
