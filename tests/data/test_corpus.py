"""El corpus en disco: repetible, estable y entero."""

import json
from pathlib import Path
from typing import Any

import pytest

from enlace.data.corpus import corpus_file, read_corpus
from enlace.data.preparation.build import build_corpus
from enlace.errors import DataError
from tests.data.builders import conversations, folder_bytes, stories, write_tree
from tests.support import make_config

_EVERYTHING = {"data.include": ["**/*"]}
_CLEAN = {"data.rules.invisible": True, "data.rules.whitespace": True}


def _build(source: Path, out: Path, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return build_corpus(source, out, make_config(_EVERYTHING | (changes or {})).data)


def _ids(corpus: Path) -> dict[str, list[str]]:
    return {split: [d.id for d in read_corpus(corpus, split)] for split in ("train", "val")}


def test_los_bytes_no_dependen_del_orden_de_creacion(tmp_path: Path) -> None:
    files = stories(40)
    write_tree(tmp_path / "a", files)
    write_tree(tmp_path / "b", dict(reversed(files.items())))
    _build(tmp_path / "a", tmp_path / "corpus_a")
    _build(tmp_path / "b", tmp_path / "corpus_b")
    contents = folder_bytes(tmp_path / "corpus_a")
    assert contents == folder_bytes(tmp_path / "corpus_b")
    assert sorted(contents) == ["report.json", "train.jsonl.zst", "val.jsonl.zst"]


def test_cada_linea_trae_id_texto_y_procedencia_y_las_cuentas_cuadran(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", stories(40))
    report = _build(tmp_path / "src", tmp_path / "corpus")
    assert report == json.loads((tmp_path / "corpus/report.json").read_text("utf-8"))
    for split in ("train", "val"):
        documents = list(read_corpus(tmp_path / "corpus", split))
        assert report["splits"][split] == {
            "documents": len(documents),
            "characters": sum(len(d.text) for d in documents),
            "bytes": sum(len(d.text.encode()) for d in documents),
            "epoch_documents": len(documents),
            "epoch_bytes": sum(len(d.text.encode()) for d in documents),
        }
        for document in documents:
            assert document.text == (tmp_path / "src" / document.source).read_text("utf-8")
    assert report["read"]["documents"] == 40


def test_al_crecer_el_corpus_ningun_documento_cambia_de_parte(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", stories(40))
    _build(tmp_path / "src", tmp_path / "before")
    write_tree(tmp_path / "src", {f"nuevo/{k}": v for k, v in stories(30, seed=1).items()})
    _build(tmp_path / "src", tmp_path / "after")
    before, after = _ids(tmp_path / "before"), _ids(tmp_path / "after")
    assert set(before["train"]) < set(after["train"])
    assert set(before["val"]) <= set(after["val"])
    assert not set(after["train"]) & set(after["val"])


def test_las_variantes_de_un_texto_son_un_solo_documento(tmp_path: Path) -> None:
    files = stories(40)
    text = str(files["cuento_000.txt"])
    files |= {"z_bom.txt": "\ufeff" + text, "z_final.txt": text + "\r\n"}
    write_tree(tmp_path / "src", files)
    report = _build(tmp_path / "src", tmp_path / "corpus", _CLEAN)
    assert report["dropped"]["duplicate"]["documents"] == 2
    assert sum(len(ids) for ids in _ids(tmp_path / "corpus").values()) == 40


def test_el_informe_cuenta_lo_que_no_entra(tmp_path: Path) -> None:
    files = stories(40) | {"a.pdf": "x", "vacio.txt": "", "latin.txt": "caf\xe9".encode("latin-1")}
    write_tree(tmp_path / "src", files)
    dropped = _build(tmp_path / "src", tmp_path / "corpus")["dropped"]
    assert {k: v["documents"] for k, v in dropped.items() if v["documents"]} == {
        "empty": 1,
        "bad_bytes": 1,
        "unknown_format": 1,
    }
    assert dropped["bad_bytes"]["examples"] == [
        "latin.txt: no es UTF-8: byte 0xE9 en la posición 3"
    ]


def test_un_texto_con_aspecto_de_token_especial_es_texto(tmp_path: Path) -> None:
    files = stories(40)
    files["especial.txt"] = "antes <|endoftext|> después <|im_start|>user"
    write_tree(tmp_path / "src", files)
    _build(tmp_path / "src", tmp_path / "corpus")
    texts = [d.text for s in ("train", "val") for d in read_corpus(tmp_path / "corpus", s)]
    assert files["especial.txt"] in texts


def test_las_conversaciones_guardan_sus_turnos(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", {"chat.jsonl": conversations(30)})
    changes = {"data.format": "chat"} | {"data.tokenizer.kind": "bpe", "model.vocab_size": 400}
    _build(tmp_path / "src", tmp_path / "corpus", changes)
    documents = [d for s in ("train", "val") for d in read_corpus(tmp_path / "corpus", s)]
    assert len(documents) == 30
    assert {tuple(turn.role for turn in d.turns) for d in documents} == {
        ("system", "user", "assistant")
    }


def test_una_parte_vacia_es_un_error_con_los_numeros(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", {"a.txt": "único"})
    with pytest.raises(DataError, match=r"parte \w+ queda vacía: 1 documento con .*=0\.1"):
        _build(tmp_path / "src", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_si_no_queda_nada_el_error_dice_por_que(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", {"a.txt": "corto", "b.txt": ""})
    with pytest.raises(DataError, match=r"empty 1, length 1"):
        _build(tmp_path / "src", tmp_path / "corpus", {"data.rules.length.min_chars": 100})


def test_un_fallo_deja_el_corpus_anterior_y_ningun_resto(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", stories(40))
    _build(tmp_path / "src", tmp_path / "out/corpus")
    before = folder_bytes(tmp_path / "out")
    write_tree(tmp_path / "src", {"z.txt.gz": b"esto no es gzip"})
    with pytest.raises(DataError, match="dañado"):
        _build(tmp_path / "src", tmp_path / "out/corpus")
    assert folder_bytes(tmp_path / "out") == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["corpus"]


def test_un_corpus_cortado_o_ausente_se_rechaza(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="genera el corpus"):
        list(read_corpus(tmp_path, "train"))
    write_tree(tmp_path / "src", stories(40))
    _build(tmp_path / "src", tmp_path / "corpus")
    path = corpus_file(tmp_path / "corpus", "train")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="cortado"):
        list(read_corpus(tmp_path / "corpus", "train"))
