"""Codificaciones: el español vuelve intacto de donde venga, y lo ilegible se nombra."""

import gzip
import json
from pathlib import Path

import pytest

from enlace.data.readers import encoding
from enlace.data.readers.guess import guess_encoding, spanish_score
from enlace.errors import DataError
from tests.data.builders import Prose, read_all, sentences, write_tree

_TEXT = (
    "¡Qué canción! ¿La oíste el año pasado en Logroño? «Sí —dijo Íñigo—, en la cigüeña vieja».\n"
    "La niña comió piñones y después bebió agua del río; ningún pájaro cantó aquella mañana.\n"
)
_SINGLE = ("cp1252", "latin-1", "iso8859-15", "mac_roman", "cp850")
_WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig")


def _stored(text: str, name: str) -> tuple[bytes, str]:
    """Los bytes del texto y lo que esa codificación conserva de él (sin raya, Latin-1)."""
    content = text.encode(name, "ignore")
    return content, content.decode(name)


@pytest.mark.parametrize("name", [*_SINGLE, *_WIDE])
@pytest.mark.parametrize("text", [_TEXT, _TEXT.replace("\n", "\r\n"), _TEXT * 30])
def test_un_txt_vuelve_intacto(tmp_path: Path, name: str, text: str) -> None:
    content, expected = _stored(text, name)
    write_tree(tmp_path, {"a.txt": content, "b.txt.gz": gzip.compress(content)})
    documents, rejections = read_all(tmp_path, on_bad_bytes="detect")
    assert [d.text for d in documents] == [expected, expected]
    assert rejections == []


@pytest.mark.parametrize("name", [*_SINGLE, *_WIDE])
def test_un_jsonl_se_decide_por_fichero(tmp_path: Path, name: str) -> None:
    # La primera línea es ASCII y la segunda solo tiene una tilde: sueltas no dirían nada.
    texts = ["hola", "mamá", _TEXT, sentences(40, 1)]
    lines = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    content, expected = _stored(lines, name)
    write_tree(tmp_path, {"a.jsonl": content})
    documents, rejections = read_all(tmp_path, on_bad_bytes="detect")
    assert [d.text for d in documents] == [
        json.loads(line)["text"] for line in expected.split("\n")
    ]
    assert [d.source for d in documents] == [f"a.jsonl:{number}" for number in range(1, 5)]
    assert rejections == []


@pytest.mark.parametrize("name", ["cp1252", "mac_roman", "utf-16-le"])
def test_la_traduccion_no_depende_de_los_bloques(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content, expected = _stored(_TEXT * 8, name)
    write_tree(tmp_path, {"a.txt": content})
    for block in (1, 7, 64):
        monkeypatch.setattr("enlace.data.readers.blocks._BLOCK", block)
        assert [d.text for d in read_all(tmp_path, on_bad_bytes="detect")[0]] == [expected]


def test_una_tilde_muy_lejana_tambien_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_WINDOW", 4096)
    monkeypatch.setattr("enlace.data.readers.blocks._BLOCK", 512)
    content, expected = _stored("solo ascii\n" * 1000 + _TEXT, "cp1252")
    write_tree(tmp_path, {"a.txt": content})
    assert [d.text for d in read_all(tmp_path, on_bad_bytes="detect")[0]] == [expected]


def test_lo_que_no_es_texto_ni_espanol_se_nombra_y_no_entra(tmp_path: Path) -> None:
    binary = bytes(range(256)) * 20
    odd = bytes(range(0x80, 0x100)) * 8
    false_wide = b"\xff\xfe" + b"\x01\x00\x02\x00" * 50
    files: dict[str, Prose] = {"a.txt": binary, "b.txt": odd, "c.txt": false_wide, "d.txt": _TEXT}
    write_tree(tmp_path, files)
    documents, rejections = read_all(tmp_path, on_bad_bytes="detect")
    assert [d.text for d in documents] == [_TEXT]
    assert [(r.rule, r.source, r.size) for r in rejections] == [
        ("bad_bytes", "a.txt", len(binary)),
        ("bad_bytes", "b.txt", len(odd)),
        ("bad_bytes", "c.txt", len(false_wide)),
    ]
    assert "bytes de control" in rejections[0].detail
    assert "empieza como utf-16-le" in rejections[2].detail


def test_un_utf8_con_un_byte_danado_sigue_siendo_utf8(tmp_path: Path) -> None:
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in ("mañana", "río")]
    write_tree(tmp_path, {"a.jsonl": b"\n".join([lines[0], b'{"text": "\xff"}', lines[1]])})
    documents, rejections = read_all(tmp_path, on_bad_bytes="detect")
    assert [d.text for d in documents] == ["mañana", "río"]
    assert [(r.rule, r.source) for r in rejections] == [("bad_bytes", "a.jsonl:2")]
    assert f"0xFF en la posición {len(lines[0]) + 11}" in rejections[0].detail


def test_un_byte_que_la_codificacion_no_tiene_solo_deja_fuera_su_registro(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_WINDOW", 2048)
    monkeypatch.setattr("enlace.data.readers.blocks._BLOCK", 512)
    good = json.dumps({"text": _TEXT}, ensure_ascii=False)
    content = "\n".join([good] * 40).encode("cp1252") + b'\n{"text": "\x81"}\n'
    write_tree(tmp_path, {"a.jsonl": content + good.encode("cp1252")})
    documents, rejections = read_all(tmp_path, on_bad_bytes="detect")
    assert len(documents) == 41
    assert {d.text for d in documents} == {_TEXT}
    assert [(r.rule, r.source) for r in rejections] == [("bad_bytes", "a.jsonl:41")]
    assert "cp1252" in rejections[0].detail


def test_con_fail_lo_que_no_es_utf8_para(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": _TEXT.encode("cp1252")})
    with pytest.raises(DataError, match=r"a\.txt: no es UTF-8.*on_bad_bytes: detect"):
        read_all(tmp_path, on_bad_bytes="fail")


def test_la_marca_bom_no_es_texto(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": "\ufeffhola".encode(), "b.txt": "hola"})
    for policy in ("detect", "skip", "fail"):
        assert [d.text for d in read_all(tmp_path, on_bad_bytes=policy)[0]] == ["hola", "hola"]


@pytest.mark.parametrize("size", range(1, 40))
def test_un_texto_cortado_en_cualquier_byte_sigue_siendo_utf8(size: int) -> None:
    assert guess_encoding(_TEXT.encode()[:size]).encoding == "utf-8"


def test_la_nota_distingue_el_texto_de_su_mala_lectura() -> None:
    assert spanish_score(_TEXT) == 1.0
    assert spanish_score("solo ascii") == 1.0
    for wrong in ("mac_roman", "cp850"):
        assert spanish_score(_TEXT.encode(wrong, "ignore").decode("cp1252", "ignore")) < 0.5


def test_unos_pocos_bytes_danados_se_arreglan_y_se_cuentan(tmp_path: Path) -> None:
    prose = sentences(120, 7)
    spoiled = prose.encode().replace("ñ".encode(), b"\xf1", 1) + b" fin\xff\xf1."
    plain = ("Sin una tilde en todo el texto que se lee. " * 60).encode() + b"\xfe"
    write_tree(
        tmp_path,
        {"a.txt": spoiled, "b.txt": plain, "corto.txt": "Ñandú, ¿más? ".encode() + b"\xff"},
    )
    documents, rejections = read_all(tmp_path, on_bad_bytes="detect")
    assert [d.text for d in documents[:2]] == [prose + " fin.", plain[:-1].decode()]
    assert [d.damage.bytes if d.damage else 0 for d in documents[:2]] == [3, 1]
    assert documents[0].damage is not None
    assert f"byte 0xF1 en la posición {spoiled.index(0xF1)}" in documents[0].damage.detail
    assert [(r.rule, r.source) for r in rejections] == [("bad_bytes", "corto.txt")]
    assert {r.source for r in read_all(tmp_path)[1]} == {"a.txt", "b.txt", "corto.txt"}
