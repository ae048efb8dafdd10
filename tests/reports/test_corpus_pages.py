"""El informe del corpus: completo, accesible, sin red y sin que un texto ajeno lo rompa."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enlace.data.preparation.build import build_corpus
from enlace.reports import markdown
from enlace.reports.corpus import corpus_html, corpus_markdown, write_corpus_report
from enlace.reports.corpus_words import KINDS, RULES
from tests.data.builders import Prose, sentences, stories, write_tree
from tests.reports.test_report_pages import parse
from tests.support import make_config

_HOSTILE = "<b>|`*_"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("informe")
    files: dict[str, Prose] = stories(40)
    files |= {
        "wiki/igual.txt": files["cuento_000.txt"],
        "wiki/casi.txt": f"{sentences(12, 1)} Fin.",
    }
    files |= {"vacio.txt": "", "eval/p.txt": sentences(4, 2), f"{_HOSTILE}.txt": sentences(12, 3)}
    changes = {
        "data.include": ["**/*"],
        "data.dedup.near": True,
        "data.contamination.action": "report",
        "data.contamination.include": ["eval/*"],
        "data.sources": [
            {"name": "wiki", "include": ["wiki/*"], "weight": 1.0, "license": "CC <BY>"}
        ],
    }
    write_tree(folder / "src", files)
    data = make_config(changes).data
    return build_corpus(folder / "src", folder / "corpus", data, Console(file=StringIO()))


def test_la_pagina_cuenta_todo_y_no_pide_nada_a_la_red(report: dict[str, Any]) -> None:
    page = corpus_html(report)
    parsed = parse(page)
    for title in (
        "Avisos",
        "¿Basta?",
        "El reparto",
        "Por fuente",
        "Qué hizo cada regla",
        "Ejemplos",
        "Repetidos",
        "Contaminación",
        "Longitudes",
        "Licencias",
    ):
        assert title in parsed.text
    assert "http" not in page
    assert "script" not in parsed.seen
    assert "<b>|" not in page.replace("<b>1", "").replace("</b>", "")
    assert parsed.text.count("CC <BY>") == 1
    assert 'lang="es"' in page
    assert page.count("<table") == page.count("<caption") == page.count("<thead")


def test_cada_regla_tiene_su_fila_y_su_nombre(report: dict[str, Any]) -> None:
    rules = [name for kind in KINDS for name in report[kind]]
    assert {"duplicate", "near_duplicate", "empty", "contamination", "weight"} <= set(rules)
    assert set(rules) <= set(RULES)
    text = parse(corpus_html(report)).text
    for name in rules:
        assert RULES[name] in text


def test_los_ficheros_son_estables_y_el_json_es_el_informe(
    report: dict[str, Any], tmp_path: Path
) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        write_corpus_report(report, folder / "corpus.json")
    names = ["corpus.html", "corpus.json", "corpus.md"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a/corpus.json").read_bytes()) == report


def test_el_markdown_no_lo_rompe_un_nombre_de_fichero(report: dict[str, Any]) -> None:
    page = corpus_markdown(report)
    assert markdown.escape(_HOSTILE) == r"\<b\>\|\`\*\_"
    rows = [line for line in page.splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in rows}
    assert widths <= {3, 4, 6, 7}
    assert "## Avisos" in page
    assert "- documentos con textos de evaluación que siguen en el corpus: 1 " in page
