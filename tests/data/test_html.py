"""Páginas: el texto entero, y fuera la navegación, los programas y lo que no se ve."""

from pathlib import Path

import pytest

from enlace.data.readers.html import html_text
from tests.data.builders import read_all, write_tree

_PAGE = """<!DOCTYPE html><html lang="es"><head><title>No sale</title><style>.a{color:red}</style>
<script>var saludo = "no soy texto";</script></head><body>
<header><a href="/">Diario del pueblo</a></header>
<nav><ul><li><a href="/">Inicio</a></li><li>Deportes</li></ul></nav>
<article><header><h1>La huerta de la ma&ntilde;ana</h1></header>
<p>La abuela reg&oacute; los tomates &mdash;dijo que as&iacute; beben mejor&#8212;.</p>
<h2>Qu&eacute; se planta</h2>
<p>En abril, &laquo;tomates&raquo;; <span class="q">&ldquo;&iquest;y pimientos?&rdquo;</span></p>
<ul class="menu-del-dia"><li>Tomate</li><li>Pimiento</li></ul>
<p hidden>Esto no se ve.</p><p>Y ya está.</p>
<table><tr><td>Abril</td><td>Tomate</td></tr></table></article>
<aside>Lo más leído</aside><div class="menu">Otro menú</div><div id="cookies">Aceptar</div>
<footer>Aviso legal</footer></body></html>"""


def test_sale_el_texto_y_no_la_navegacion() -> None:
    text = html_text(_PAGE)
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    assert paragraphs == [
        "La huerta de la mañana",
        "La abuela regó los tomates —dijo que así beben mejor—.",
        "Qué se planta",
        "En abril, «tomates»; “¿y pimientos?”",
        "• Tomate • Pimiento",
        "Y ya está.",
        "Abril Tomate",
    ]


def test_una_pagina_mal_cerrada_conserva_su_texto() -> None:
    broken = "<p>Un párrafo <b>sin cerrar<p>Otro &amp; más &lt;texto&gt; <i>aquí</b> sigue"
    assert html_text(broken) == "Un párrafo sin cerrar\n\nOtro & más <texto> aquí sigue"


def test_una_pagina_es_un_documento_y_una_sin_texto_se_cuenta(tmp_path: Path) -> None:
    empty = "<html><body><script>1</script></body></html>"
    write_tree(tmp_path, {"a.html": _PAGE, "b.HTM": "<p>Otra</p>", "c.html": empty})
    documents, rejections = read_all(tmp_path)
    assert [d.source for d in documents] == ["a.html", "b.HTM"]
    assert [(r.rule, r.source, r.size) for r in rejections] == [("empty", "c.html", len(empty))]


@pytest.mark.parametrize("tag", ["<div>", "<table>", "<b><p>", "<ul><li>"])
def test_un_anidamiento_desmedido_no_tira_el_proceso(tag: str) -> None:
    assert html_text(tag * 3000 + "hola").endswith("hola")
