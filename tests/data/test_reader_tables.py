"""Registros con columnas: json entero, parquet por grupos, columnas anidadas y fuentes."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from enlace.data.documents import Document
from enlace.data.readers import RawRecord, iterate_records, parse_record
from enlace.errors import DataError
from tests.data.builders import Prose, data_config, read_all, write_tree

_ROWS: list[dict[str, Any]] = [
    {"texto": "Mañana, ¿no?", "url": None, "meta": {"tipo": "carta"}},
    {"texto": "¡Año nuevo!", "url": None, "meta": {"tipo": "diario"}},
]
_SQUAD = {
    "version": "1",
    "data": [
        {"title": "Uno", "paragraphs": [{"context": "El río.", "qas": [{"question": "¿Qué?"}]}]},
        {"title": "Dos", "paragraphs": [{"context": "La mar.", "qas": []}, {"context": "El sol."}]},
    ],
}


def _parquet(rows: list[dict[str, Any]], path: Path, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


@pytest.mark.parametrize("indent", [None, 2])
def test_un_json_es_un_objeto_o_una_lista_de_objetos(tmp_path: Path, indent: int | None) -> None:
    one, several = json.dumps(_ROWS[0], indent=indent), json.dumps(_ROWS, indent=indent)
    write_tree(tmp_path, {"a.json": one, "b.json.gz": gzip.compress(several.encode())})
    documents, rejections = read_all(tmp_path, text_column="texto", genre_column="meta.tipo")
    assert [(d.text, d.source, d.genre) for d in documents] == [
        ("Mañana, ¿no?", "a.json", "carta"),
        ("Mañana, ¿no?", "b.json.gz:1", "carta"),
        ("¡Año nuevo!", "b.json.gz:2", "diario"),
    ]
    assert rejections == []


def test_una_columna_con_puntos_baja_y_recorre_listas(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.json": json.dumps(_SQUAD)})
    documents, _ = read_all(tmp_path, text_column="data.paragraphs.context")
    assert [(d.text, d.source) for d in documents] == [
        ("El río.", "a.json#1"),
        ("La mar.", "a.json#2"),
        ("El sol.", "a.json#3"),
    ]
    _, rejections = read_all(tmp_path)
    assert [(r.rule, r.source) for r in rejections] == [("bad_record", "a.json")]
    assert "data.title, data.paragraphs.context" in rejections[0].detail


def test_un_json_malo_o_vacio_se_cuenta(tmp_path: Path) -> None:
    files: dict[str, Prose] = {
        "a.json": "{mal",
        "b.json": "[]",
        "c.json": '["x", {"text": "y"}]',
        "d.json": "",
    }
    write_tree(tmp_path, files)
    documents, rejections = read_all(tmp_path)
    assert [d.text for d in documents] == ["y"]
    assert [(r.rule, r.source) for r in rejections] == [
        ("bad_record", "a.json"),
        ("empty", "b.json"),
        ("bad_record", "c.json:1"),
        ("empty", "d.json"),
    ]


def test_un_jsonl_con_sangria_se_explica(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.jsonl": json.dumps({"text": "hola"}, indent=2)})
    with pytest.raises(DataError, match=r"a\.jsonl:1: JSON inválido .*llámalo \.json"):
        read_all(tmp_path)


def test_con_la_columna_equivocada_se_sabe_sin_leer_el_fichero_entero(tmp_path: Path) -> None:
    tail = '{"text": "tarde"}\n'
    write_tree(tmp_path, {"a.jsonl": '{"texto": "x"}\n' * 1000 + tail})
    with pytest.raises(
        DataError, match=r"primeros 1000 registros .*:1: falta el campo «text» \(tiene texto\)"
    ):
        read_all(tmp_path)
    write_tree(tmp_path, {"a.jsonl": '{"texto": "x"}\n' * 999 + tail})
    documents, rejections = read_all(tmp_path)
    assert [d.text for d in documents] == ["tarde"]
    assert len(rejections) == 999


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_un_parquet_da_una_fila_por_documento(tmp_path: Path, compression: str) -> None:
    rows = [row | {"texto": f"{row['texto']} {n}"} for n in range(90) for row in _ROWS]
    _parquet(rows, tmp_path / "a.parquet", row_group_size=50, compression=compression)
    documents, rejections = read_all(tmp_path, text_column="texto", genre_column="meta.tipo")
    assert [(d.text, d.source, d.genre) for d in documents] == [
        (row["texto"], f"a.parquet:{number}", row["meta"]["tipo"])
        for number, row in enumerate(rows, start=1)
    ]
    assert rejections == []


def test_un_parquet_comprimido_por_fuera_tambien_se_lee(tmp_path: Path) -> None:
    path = _parquet(_ROWS, tmp_path / "a.parquet")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    documents, _ = read_all(tmp_path, text_column="texto")
    assert [d.source for d in documents] == ["a.parquet.gz:1", "a.parquet.gz:2"]


def test_solo_se_leen_las_columnas_que_hacen_falta(tmp_path: Path) -> None:
    _parquet(_ROWS, tmp_path / "a.parquet")
    data = data_config(text_column="texto", license_column="no_hay")
    payloads = [r.payload for r in iterate_records(tmp_path, data) if isinstance(r, RawRecord)]
    assert payloads == [{"texto": row["texto"]} for row in _ROWS]


def test_filas_nulas_y_filas_enormes_se_cuentan(tmp_path: Path) -> None:
    texts = ["uno", None, "x" * 50_000, "dos"]
    _parquet([{"text": text} for text in texts], tmp_path / "a.parquet")
    documents, rejections = read_all(tmp_path, max_record_megabytes=0.01)
    assert [d.text for d in documents] == ["uno", "dos"]
    assert {(r.rule, r.source) for r in rejections} == {
        ("bad_record", "a.parquet:2"),
        ("too_long", "a.parquet:3"),
    }


def test_un_parquet_sin_la_columna_o_roto_es_un_error(tmp_path: Path) -> None:
    path = _parquet(_ROWS, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no tiene la columna «text»; tiene texto, url, meta"):
        read_all(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="no es un parquet entero"):
        read_all(tmp_path)


def test_las_conversaciones_de_un_parquet_traen_sus_turnos(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "¿Y?"}, {"role": "assistant", "content": "Nada."}]
    _parquet([{"messages": turns, "otra": 1}], tmp_path / "a.parquet")
    documents, _ = read_all(tmp_path, format="chat")
    assert [turn._asdict() for turn in documents[0].turns] == turns


def test_la_primera_fuente_que_casa_da_nombre_y_licencia(tmp_path: Path) -> None:
    wiki = {"name": "wiki", "include": ["wiki/**"], "weight": 2.0, "license": "CC BY-SA 4.0"}
    rest = {"name": "libros", "include": ["**/*.txt"], "weight": 1.0, "license": "dominio público"}
    files = {"wiki/a.txt": "uno", "b.txt": "dos", "cartas/c.md": "tres"}
    write_tree(tmp_path, {**files, "d.jsonl": '{"text": "cuatro", "lic": "CC0"}'})
    data = data_config(sources=[wiki, rest], license_column="lic")
    records = [r for r in iterate_records(tmp_path, data) if isinstance(r, RawRecord)]
    assert {r.source: r.origin for r in records} == {
        "b.txt": 1,
        "cartas/c.md": -1,
        "d.jsonl:1": -1,
        "wiki/a.txt": 0,
    }
    documents = [d for r in records for d in parse_record(r, data) if isinstance(d, Document)]
    assert {d.source: (d.origin, d.license) for d in documents} == {
        "b.txt": ("libros", "dominio público"),
        "cartas/c.md": ("cartas", ""),
        "d.jsonl:1": ("general", "CC0"),
        "wiki/a.txt": ("wiki", "CC BY-SA 4.0"),
    }


@pytest.mark.parametrize(
    ("includes", "problem"),
    [
        (["nada/*"], "«s0»: los ficheros de nada/\\* no hay"),
        (["**/*.txt", "a.txt"], "«s1»: los ficheros de a.txt ya están en s0"),
        (["*.pdf"], "«s0»: los ficheros de \\*.pdf no se pueden leer \\(b.pdf: .*pdftotext"),
    ],
)
def test_una_fuente_sin_ficheros_es_un_error(
    tmp_path: Path, includes: list[str], problem: str
) -> None:
    write_tree(tmp_path, {"a.txt": "x", "b.pdf": "x"})
    sources = [
        {"name": f"s{n}", "include": [pattern], "weight": 1.0, "license": "CC0"}
        for n, pattern in enumerate(includes)
    ]
    with pytest.raises(DataError, match=problem):
        read_all(tmp_path, sources=sources)
