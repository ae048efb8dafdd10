"""Bloques, líneas y trozos: nada se pierde y nada se guarda entero."""

import bz2
import gzip
import lzma
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from enlace.data.documents import Rejection
from enlace.data.readers import RawRecord, blocks, encoding, iterate_records
from enlace.data.readers.blocks import bounded_lines, cut_pieces, read_blocks
from enlace.errors import DataError
from tests.data.builders import data_config, read_all, write_tree

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lambda content: lzma.compress(content, preset=0),
    ".zst": zstandard.ZstdCompressor().compress,
}
_HUGE = 2_000_000
_LIMIT_MB = 0.05


@pytest.mark.parametrize("suffix", list(_COMPRESS))
def test_cada_compresion_da_los_mismos_bytes(tmp_path: Path, suffix: str) -> None:
    content = ("Érase una vez.\n" * 40_000).encode()
    path = write_tree(tmp_path, {f"a.txt{suffix}": _COMPRESS[suffix](content)}) / f"a.txt{suffix}"
    assert b"".join(read_blocks(path)) == content
    twice = _COMPRESS[suffix](content[:1000]) + _COMPRESS[suffix](content[1000:])
    path.write_bytes(twice)
    assert b"".join(read_blocks(path)) == content


@pytest.mark.parametrize("suffix", list(_COMPRESS)[1:])
def test_un_comprimido_cortado_o_falso_es_un_error(tmp_path: Path, suffix: str) -> None:
    whole = _COMPRESS[suffix](b"hola " * 1000)
    for content in (whole[:-1], whole[: len(whole) // 2], b"no es un comprimido"):
        write_tree(tmp_path, {f"A.TXT{suffix.upper()}": content})
        with pytest.raises(DataError, match="está dañado o cortado"):
            read_all(tmp_path)


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=12).map(lambda part: part.replace(b"x", b"\n"))),
    st.integers(0, 20),
)
def test_las_lineas_son_las_del_texto_y_las_largas_solo_se_miden(
    parts: list[bytes], limit: int
) -> None:
    content = b"".join(parts)
    expected = content.split(b"\n")
    lines = list(bounded_lines(parts, limit))
    if not expected[-1]:
        expected.pop()
    assert [line.size for line in lines] == [len(line) for line in expected]
    assert [line.content for line in lines] == [
        line if len(line) <= limit else None for line in expected
    ]
    assert [line.number for line in lines] == list(range(1, len(expected) + 1))
    assert all(content[line.offset :].startswith(line.content or b"") for line in lines)


_SPANISH = st.text(alphabet="aeñó€𝄞 \n\r\t", max_size=300)


@settings(max_examples=60)
@given(_SPANISH, st.integers(4, 60), st.integers(1, 50))
def test_los_trozos_unidos_son_el_texto_y_caben(text: str, limit: int, block: int) -> None:
    content = text.encode()
    parts = [content[start : start + block] for start in range(0, len(content), block)]
    pieces = list(cut_pieces(parts, limit))
    assert b"".join(pieces) == content
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert pieces == list(cut_pieces([content] if content else [], limit))
    for piece in pieces:
        piece.decode("utf-8")  # ningún corte parte un carácter


@given(st.binary(max_size=200), st.integers(1, 40))
def test_tampoco_con_bytes_cualesquiera_se_pierde_nada(content: bytes, limit: int) -> None:
    pieces = list(cut_pieces([content], limit))
    assert b"".join(pieces) == content
    assert all(0 < len(piece) <= limit for piece in pieces)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a" * 50 + "\n\n" + "b" * 40 + "\n" + "c" * 40, "a" * 50 + "\n\n"),
        ("a" * 20 + "\n\n" + "b" * 40 + "\n" + "c" * 80, "a" * 20 + "\n\n" + "b" * 40 + "\n"),
        ("a" * 50 + "\r\n \r\n" + "b" * 80, "a" * 50 + "\r\n \r\n"),
        ("a" * 70 + " " + "b" * 80, "a" * 70 + " "),
        ("a" * 99 + "ñ" + "b" * 80, "a" * 99),
    ],
)
def test_se_corta_por_lo_mas_ancho_que_haya(text: str, first: str) -> None:
    assert next(cut_pieces([text.encode()], 100)).decode() == first


def test_un_txt_grande_se_corta_en_documentos_con_su_numero(tmp_path: Path) -> None:
    paragraphs = [f"Párrafo {number}. " + "Llueve. " * 30 for number in range(20)]
    text = "\n\n".join(paragraphs)
    write_tree(tmp_path, {"a.txt": text, "b.txt": "corto"})
    documents, rejections = read_all(tmp_path, max_document_megabytes=0.001)
    assert "".join(d.text for d in documents[:-1]) == text
    assert [d.source for d in documents] == [
        *(f"a.txt#{number + 1}" for number in range(len(documents) - 1)),
        "b.txt",
    ]
    assert all(d.text.startswith("Párrafo ") for d in documents[:-1])
    assert rejections == []


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bloques y ventana pequeños, para que lo enorme pueda ser pequeño."""
    monkeypatch.setattr(encoding, "_WINDOW", 1 << 14)
    monkeypatch.setattr(blocks, "_BLOCK", 1 << 13)


def _peak(folder: Path) -> tuple[list[str], list[Rejection], int]:
    read_all(folder, max_record_megabytes=_LIMIT_MB)  # lo que se importa no cuenta
    tracemalloc.start()
    documents, rejections = read_all(folder, max_record_megabytes=_LIMIT_MB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [d.text for d in documents], rejections, peak


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_un_registro_enorme_se_nombra_sin_guardarlo(tmp_path: Path, suffix: str) -> None:
    line = b'{"text": "' + random.Random(1).randbytes(_HUGE // 2).hex().encode() + b'"}'
    content = b'{"text": "uno"}\n' + line + b'\n{"text": "dos"}\n'
    write_tree(tmp_path, {f"a.jsonl{suffix}": _COMPRESS[suffix](content)})
    texts, rejections, peak = _peak(tmp_path)
    assert texts == ["uno", "dos"]
    assert [(r.rule, r.source, r.size) for r in rejections] == [
        ("too_long", f"a.jsonl{suffix}:2", len(line))
    ]
    assert "data.max_record_megabytes" in rejections[0].detail
    assert peak < _HUGE / 2


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["a.html", "a.json"])
def test_una_pagina_o_un_json_enormes_se_nombran_sin_guardarlos(tmp_path: Path, name: str) -> None:
    content = b"<p>" + b"hola " * (_HUGE // 5)
    write_tree(tmp_path, {name: content, "b.txt": "dos"})
    texts, rejections, peak = _peak(tmp_path)
    assert texts == ["dos"]
    assert [(r.rule, r.source, r.size) for r in rejections] == [("too_long", name, len(content))]
    assert peak < _HUGE / 2


@pytest.mark.usefixtures("small_blocks")
def test_un_txt_enorme_pasa_sin_guardarlo(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": b"hola " * (_HUGE // 5)})
    data = data_config(max_document_megabytes=_LIMIT_MB)
    tracemalloc.start()
    total = sum(len(r.payload) for r in iterate_records(tmp_path, data) if isinstance(r, RawRecord))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == _HUGE
    assert peak < _HUGE / 2
