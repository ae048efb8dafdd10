"""Markdown: las marcas se quedan y la cabecera de metadatos no."""

from pathlib import Path

import pytest

from enlace.data.readers.markdown import without_front_matter
from tests.data.builders import read_all, write_tree

_BODY = "# Ley\n\nUn *artículo* y una [nota](x.md).\n\n---\n\nOtro.\n"
_YAML = 'titulo: "Ley Nº 1"\nautores:\n  - Ana\n- suelto\n# nota\n\nfecha: 2015\n'


@pytest.mark.parametrize(
    "header",
    [f"---\n{_YAML}---\n", f"---\n{_YAML}...\n", '+++\ntitulo = "x"\n[extra]\n+++\n'],
)
def test_la_cabecera_se_quita_y_lo_demas_queda_igual(header: str) -> None:
    assert without_front_matter(header + _BODY) == _BODY
    windows = (header + _BODY).replace("\n", "\r\n")
    assert without_front_matter(windows) == _BODY.replace("\n", "\r\n")


@pytest.mark.parametrize(
    "text",
    [
        _BODY,
        "---\n\nUna raya de separación y prosa sin dos puntos\n\n---\n\nMás.\n",
        "---\n---\n",
        "---\ntitulo: sin cerrar\n",
        "Antes\n---\ntitulo: x\n---\n",
        "",
    ],
)
def test_lo_que_no_es_una_cabecera_no_se_toca(text: str) -> None:
    assert without_front_matter(text) == text


def test_un_md_con_marca_bom_pierde_la_cabecera_y_uno_sin_texto_se_cuenta(tmp_path: Path) -> None:
    header = f"---\n{_YAML}---\n"
    write_tree(tmp_path, {"a.md": f"\ufeff{header}{_BODY}", "b.MD": header})
    documents, rejections = read_all(tmp_path)
    assert [d.text for d in documents] == [_BODY]
    assert [(r.rule, r.source) for r in rejections] == [("empty", "b.MD")]
