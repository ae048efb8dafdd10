"""Lectores: formatos, compresión y nada perdido en silencio."""

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from enlace.data.documents import Turn
from enlace.data.readers.blocks import read_lines
from enlace.errors import DataError
from tests.data.builders import Prose, read_all, write_tree

_TEXT = "Érase una vez\nun cigüeñal.\n"


def _zst(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", _TEXT.encode()),
        ("a.txt.gz", gzip.compress(_TEXT.encode(), mtime=0)),
        ("a.txt.zst", _zst(_TEXT.encode())),
        ("partido.txt.zst", _zst(_TEXT[:7].encode()) + _zst(_TEXT[7:].encode())),
        (
            "partido.txt.gz",
            gzip.compress(_TEXT[:7].encode(), mtime=0) + gzip.compress(_TEXT[7:].encode(), mtime=0),
        ),
    ],
)
def test_un_txt_es_un_documento(tmp_path: Path, name: str, content: bytes) -> None:
    write_tree(tmp_path, {name: content})
    documents, rejections = read_all(tmp_path)
    assert [(d.text, d.source) for d in documents] == [(_TEXT, name)]
    assert rejections == []


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_un_jsonl_es_un_documento_por_linea(
    tmp_path: Path, suffix: str, line_end: str, mark: str
) -> None:
    lines = [json.dumps({"text": text}) for text in ("uno", "dos", "trés")]
    content = (mark + line_end.join([*lines[:2], "", lines[2]])).encode()
    stored = {"": content, ".gz": gzip.compress(content, mtime=0), ".zst": _zst(content)}[suffix]
    write_tree(tmp_path, {f"a.jsonl{suffix}": stored})
    documents, rejections = read_all(tmp_path)
    assert [d.text for d in documents] == ["uno", "dos", "trés"]
    assert [d.source for d in documents] == [f"a.jsonl{suffix}:{n}" for n in (1, 2, 4)]
    assert rejections == []


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.zst", ".jsonl.zst"])
def test_un_comprimido_cortado_es_un_error(tmp_path: Path, suffix: str) -> None:
    content = json.dumps({"text": "hola " * 400}).encode()
    whole = gzip.compress(content, mtime=0) if suffix.endswith("gz") else _zst(content)
    for size in (len(whole) - 1, len(whole) // 2):
        write_tree(tmp_path, {f"a{suffix}": whole[:size]})
        with pytest.raises(DataError, match=r"a\.\w+\.\w+ está dañado o cortado"):
            read_all(tmp_path)


def test_lo_que_no_esta_comprimido_pese_a_su_nombre_es_un_error(tmp_path: Path) -> None:
    for name in ("a.txt.gz", "a.txt.zst"):
        folder = write_tree(tmp_path / name, {name: "no es un comprimido"})
        with pytest.raises(DataError, match="está dañado"):
            read_all(folder)


def test_los_bytes_que_no_son_utf8_se_nombran_con_su_posicion(tmp_path: Path) -> None:
    latin = "un café".encode("latin-1")
    record = json.dumps({"text": "bien"}).encode()
    broken = b'{"text": "ma\xf1ana"}'
    files: dict[str, Prose] = {"a.txt": latin, "b.jsonl": record + b"\n" + broken + b"\n"}
    write_tree(tmp_path, files)
    documents, rejections = read_all(tmp_path)
    assert [d.text for d in documents] == ["bien"]
    assert [(r.rule, r.source, r.size) for r in rejections] == [
        ("bad_bytes", "a.txt", len(latin)),
        ("bad_bytes", "b.jsonl:2", len(broken)),
    ]
    assert "0xE9 en la posición 6" in rejections[0].detail
    assert f"0xF1 en la posición {len(record) + 1 + broken.index(0xF1)}" in rejections[1].detail
    with pytest.raises(DataError, match=r"a\.txt: no es UTF-8.*on_bad_bytes: detect"):
        read_all(tmp_path, on_bad_bytes="fail")


def test_la_posicion_cuenta_la_marca_bom_de_la_primera_linea(tmp_path: Path) -> None:
    line = b'\xef\xbb\xbf{"text": "\xe9"}\n{"text": "x"}'
    write_tree(tmp_path, {"a.jsonl": line})
    _, rejections = read_all(tmp_path)
    assert f"posición {line.index(0xE9)}" in rejections[0].detail


def test_un_utf16_no_pasa_por_utf8(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": "hola".encode("utf-16"), "b.txt": "x"})
    _, rejections = read_all(tmp_path)
    assert [r.rule for r in rejections] == ["bad_bytes"]


def test_un_registro_malo_se_cuenta_con_su_linea(tmp_path: Path) -> None:
    lines = ['{"text": "bien"}', "{mal", "[1]", '{"otro": 1}', '{"text": 3}', '{"text": "\\ud800"}']
    lines += ['{"text": ' + "9" * 5000 + "}", "[" * 100_000]
    write_tree(tmp_path, {"a.jsonl": "\n".join(lines)})
    documents, rejections = read_all(tmp_path)
    assert [d.text for d in documents] == ["bien"]
    assert [r.source for r in rejections] == [f"a.jsonl:{n}" for n in range(2, 9)]
    rules = ["bad_record"] * 4 + ["bad_bytes"] + ["bad_record"] * 2
    assert [r.rule for r in rejections] == rules
    details = " | ".join(r.detail for r in rejections)
    assert "JSON inválido" in details
    assert "falta el campo «text» (no tiene ninguno de texto)" in details


def test_un_jsonl_sin_registros_se_cuenta_como_vacio(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.jsonl": "", "b.jsonl": "\r\n\n", "c.jsonl": '{"text": "x"}'})
    documents, rejections = read_all(tmp_path)
    assert len(documents) == 1
    assert [(r.rule, r.source) for r in rejections] == [("empty", "a.jsonl"), ("empty", "b.jsonl")]


def test_un_jsonl_sin_la_columna_en_ningun_registro_es_un_error(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.jsonl": '{"texto": "uno"}\n{"texto": "dos"}\n'})
    with pytest.raises(DataError, match=r"a\.jsonl:1: falta el campo «text» \(tiene texto\)"):
        read_all(tmp_path)
    documents, _ = read_all(tmp_path, text_column="texto")
    assert [d.text for d in documents] == ["uno", "dos"]


def test_una_conversacion_trae_sus_turnos(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "¿Qué tal?"}, {"role": "assistant", "content": "Bien."}]
    lines = [json.dumps({field: turns}) for field in ("messages", "turns")]
    write_tree(tmp_path, {"a.jsonl": "\n".join(lines)})
    documents, _ = read_all(tmp_path, format="chat")
    expected = (Turn("user", "¿Qué tal?"), Turn("assistant", "Bien."))
    assert [d.turns for d in documents] == [expected, expected]
    assert documents[0].text == "¿Qué tal?\nBien."


def test_una_conversacion_mal_hecha_se_cuenta(tmp_path: Path) -> None:
    good = {"role": "assistant", "content": "Sí."}
    bad: list[object] = [
        {"text": "x"},
        {"messages": []},
        {"messages": ["hola"]},
        {"messages": [{"role": "tool", "content": "x"}, good]},
        {"messages": [{"role": "user", "content": None}, good]},
        {"messages": [{"role": "user", "content": "x"}]},
    ]
    lines = [json.dumps(record) for record in [{"messages": [good]}, *bad]]
    write_tree(tmp_path, {"a.jsonl": "\n".join(lines)})
    documents, rejections = read_all(tmp_path, format="chat")
    assert len(documents) == 1
    assert [r.source for r in rejections] == [f"a.jsonl:{n}" for n in range(2, 8)]
    assert "role='tool'" in rejections[3].detail


def test_en_chat_un_txt_no_es_un_formato_conocido(tmp_path: Path) -> None:
    good = json.dumps({"messages": [{"role": "assistant", "content": "Sí."}]})
    write_tree(tmp_path, {"a.txt": "hola", "b.jsonl": good})
    documents, rejections = read_all(tmp_path, format="chat")
    assert len(documents) == 1
    assert [(r.rule, r.source) for r in rejections] == [("unknown_format", "a.txt")]


def test_las_lineas_no_dependen_de_los_bloques(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"uno\n\n" + b"x" * 37 + b"\ndos\r\nfin"
    path = write_tree(tmp_path, {"a.jsonl": content}) / "a.jsonl"
    expected, offset = [], 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        expected.append((number, offset, line))
        offset += len(line) + 1
    for block in (1, 2, 5, 1000):
        monkeypatch.setattr("enlace.data.readers.blocks._BLOCK", block)
        assert list(read_lines(path)) == expected
