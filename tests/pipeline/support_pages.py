"""Leer páginas Markdown: títulos, bloques de código, enlaces y anclas como los hace GitHub."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(\s*)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TARGET = re.compile(r"(?:`|^|&& |\()make ([a-z][a-z-]*)", re.MULTILINE)


class Block(NamedTuple):
    """Un bloque de código y su lenguaje."""

    language: str
    content: str


def pages() -> list[Path]:
    """Las páginas del repositorio."""
    return [ROOT / "README.md", ROOT / "README.en.md", *sorted((ROOT / "docs").glob("*.md"))]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    """Los bloques de código, con su sangría quitada."""
    found = []
    for indent, language, content in _FENCE.findall(text):
        lines = [line.removeprefix(indent) for line in content.splitlines()]
        found.append(Block(language, "\n".join(lines)))
    return found


def prose(text: str) -> str:
    """El texto sin bloques de código ni comentarios HTML."""
    return _COMMENT.sub("", _FENCE.sub("", text))


def headings(text: str) -> list[tuple[int, str]]:
    """Los títulos como (nivel, texto)."""
    return [(len(level), title.strip()) for level, title in _HEADING.findall(prose(text))]


def links(text: str) -> list[str]:
    """Los destinos de los enlaces que no salen del repositorio."""
    return [target for target in _LINK.findall(prose(text)) if "://" not in target]


def anchors(text: str) -> set[str]:
    """El ancla de cada título: minúsculas, sin puntuación y con guiones."""
    plain = (re.sub(r"[`*]", "", title).lower() for _, title in headings(text))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def make_targets(text: str) -> set[str]:
    """Los `make X` que la página nombra, en la prosa o en los bloques."""
    return set(_TARGET.findall(text))


def defined_targets() -> set[str]:
    """Los objetivos que define el Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", read(ROOT / "Makefile"), re.MULTILINE))
