"""Los dos README dicen lo mismo: mismas secciones, mismas órdenes, y órdenes que existen."""

import re

import pytest

from tests.pipeline.support_pages import (
    ROOT,
    Block,
    blocks,
    defined_targets,
    headings,
    links,
    make_targets,
    read,
)

SPANISH, ENGLISH = read(ROOT / "README.md"), read(ROOT / "README.en.md")
BOTH = pytest.mark.parametrize("text", [SPANISH, ENGLISH], ids=["español", "inglés"])
_COMMENT = re.compile(r"\s*#.*$", re.MULTILINE)


def _commands(text: str) -> list[Block]:
    """Los bloques de órdenes sin sus comentarios, que sí se traducen."""
    return [
        Block(block.language, _COMMENT.sub("", block.content))
        for block in blocks(text)
        if block.language == "bash"
    ]


def test_las_secciones_son_las_mismas() -> None:
    spanish, english = headings(SPANISH), headings(ENGLISH)
    assert [level for level, _ in spanish] == [level for level, _ in english]
    assert len(spanish) > 10


def test_las_ordenes_son_las_mismas() -> None:
    assert _commands(SPANISH) == _commands(ENGLISH)
    assert [block.language for block in blocks(SPANISH)] == [
        block.language for block in blocks(ENGLISH)
    ]


def test_los_enlaces_llevan_a_los_mismos_ficheros() -> None:
    def files(text: str, twin: str) -> list[str]:
        return [link.partition("#")[0] for link in links(text) if link != twin]

    assert files(SPANISH, "README.en.md") == files(ENGLISH, "README.md")


@BOTH
def test_toda_orden_de_make_existe(text: str) -> None:
    named = make_targets(text)
    assert named <= defined_targets()
    assert {"demo", "corpus", "train", "check", "test"} <= named


@BOTH
def test_todo_run_nombrado_existe(text: str) -> None:
    runs = {path.stem for path in (ROOT / "configs" / "runs").glob("*.yaml")}
    named = set(re.findall(r"RUN=([a-z0-9-]+)", text))
    assert named
    assert named <= runs


@BOTH
def test_la_primera_pantalla_muestra_las_ordenes(text: str) -> None:
    first_screen = text.splitlines()[:40]
    assert any("make demo" in line for line in first_screen)
    assert "![" not in "\n".join(first_screen)
