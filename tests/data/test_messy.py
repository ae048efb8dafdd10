"""Entradas sucias de verdad, cuando están a mano: qué pasa con cada fichero, por escrito."""

import json
from pathlib import Path

import pytest

from tests.data.builders import read_all

_MESSY = Path(__file__).parents[3] / "shared" / "data" / "messy"

pytestmark = pytest.mark.skipif(not _MESSY.is_dir(), reason="falta ../shared/data/messy")

_DOCUMENTS = {
    "bom_galdos_teatro.txt": 1,
    "con_nulos.txt": 1,
    "cp1252_crlf.txt": 1,
    "frontmatter_ley.md": 1,
    "html_gimp.html": 1,
    "html_libreoffice_anchor_object.html": 1,
    "latin1_quijote_cap1.txt": 1,
    "mojibake.txt": 1,
    "muestra_wiki.jsonl.gz": 300,
    "muestra_wiki.parquet": 800,
}
_REJECTIONS = {
    "linea_unica_mlqa.json": "bad_record",
    "refranes.fortunes": "unknown_format",
    "solo_espacios.txt": "empty",
    "vacio.txt": "empty",
}


def test_cada_fichero_tiene_su_destino() -> None:
    documents, rejections = read_all(
        _MESSY, on_bad_bytes="detect", include=["*"], max_record_megabytes=16.0
    )
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for document in documents:
        name = document.source.partition(":")[0]
        counts[name] = counts.get(name, 0) + 1
        texts[name] = document.text
    counts.pop("README.md", None)
    assert counts == _DOCUMENTS
    assert {r.source: r.rule for r in rejections} == _REJECTIONS
    # Ni una tilde perdida: los mismos caracteres que da leerlos sabiendo su codificación.
    for name, encoding in {
        "latin1_quijote_cap1.txt": "latin-1",
        "cp1252_crlf.txt": "cp1252",
        "bom_galdos_teatro.txt": "utf-8-sig",
    }.items():
        assert texts[name] == (_MESSY / name).read_bytes().decode(encoding)
    assert not texts["frontmatter_ley.md"].startswith("---")
    assert "Posicionar objetos\n\nUn objeto" in texts["html_libreoffice_anchor_object.html"]
    for name in ("html_gimp.html", "html_libreoffice_anchor_object.html"):
        assert not {"Anterior", "Siguiente", "Contenido", "Índice"} & set(texts[name].split())
    explained = {r.source: r.detail for r in rejections}
    assert "data.paragraphs.context" in explained["linea_unica_mlqa.json"]
    assert ".txt" in explained["refranes.fortunes"]


def test_el_json_de_preguntas_se_lee_con_su_columna() -> None:
    documents, rejections = read_all(
        _MESSY, include=["linea_unica_mlqa.json"], text_column="data.paragraphs.context"
    )
    content = json.loads((_MESSY / "linea_unica_mlqa.json").read_bytes())
    expected = [part["context"] for entry in content["data"] for part in entry["paragraphs"]]
    assert [d.text for d in documents] == expected
    assert rejections == []
