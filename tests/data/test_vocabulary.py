"""La etapa del tokenizador: muestra, medida y avisos."""

import json
from pathlib import Path

import pytest

from enlace.data.corpus import read_corpus
from enlace.data.preparation.build import build_corpus
from enlace.data.tokenizer import load_tokenizer
from enlace.data.vocabulary import build_tokenizer, measure_tokenizer
from enlace.errors import DataError
from enlace.reports.tokenizer import tokenizer_markdown
from tests.data.builders import bpe, folder_bytes, stories, write_tree
from tests.support import make_config


def _corpus(folder: Path, count: int = 40) -> Path:
    write_tree(folder / "src", stories(count))
    build_corpus(folder / "src", folder / "corpus", make_config().data)
    return folder / "corpus"


def test_el_tokenizador_se_entrena_igual_dos_veces_y_se_mide(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path)
    config = make_config(bpe(380))
    for name in ("uno", "dos"):
        report = build_tokenizer(corpus, tmp_path / name, config.data, 380)
    assert folder_bytes(tmp_path / "uno") == folder_bytes(tmp_path / "dos")
    assert report == json.loads((tmp_path / "uno/report.json").read_text("utf-8"))
    tokenizer = load_tokenizer(tmp_path / "uno")
    texts = [document.text for document in read_corpus(corpus, "val")]
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    measured = report["validation"]
    assert [row | {"name": ""} for row in report["genres"]] == [{"name": ""} | measured]
    assert sum(row["bytes"] for row in report["sample"]) == report["trained_bytes"]
    for example in report["examples"]:
        joined = tokenizer.decode(tokenizer.encode(f" {example['word']}"))
        assert joined == f" {example['word']}"
        if not any("‹" in piece for piece in example["pieces"]):
            assert "".join(example["pieces"]) == joined
    page = tokenizer_markdown(report)
    assert "Por género" in page
    assert "dígaselo" in page
    assert measured["tokens"] == tokens
    assert measured["bytes_per_token"] == round(sum(len(t.encode()) for t in texts) / tokens, 4)
    assert measured["tokens_per_word"] > 1
    assert (report["vocab_size"], report["warnings"]) == (380, [])


def test_uno_ya_hecho_se_mide_igual_que_al_entrenarlo(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path)
    report = build_tokenizer(corpus, tmp_path / "t", make_config(bpe(380)).data, 380)
    before = (tmp_path / "t/tokenizer.json").read_bytes()
    measured = measure_tokenizer(corpus, tmp_path / "t", 380)
    assert measured == report | {"trained_bytes": 0, "sample": []}
    assert measured == json.loads((tmp_path / "t/report.json").read_text("utf-8"))
    assert (tmp_path / "t/tokenizer.json").read_bytes() == before
    assert "Con qué se entrenó" not in tokenizer_markdown(measured)


def test_un_corpus_corto_encoge_y_lo_dice(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path)
    report = build_tokenizer(corpus, tmp_path / "t", make_config(bpe(60_000)).data, 60_000)
    assert report["vocab_size"] < 2000
    assert report["model_vocab_size"] == 60_000
    assert f"{report['vocab_size']} tokens de los 60000" in report["warnings"][0]


def test_los_bytes_exigen_256(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path)
    report = build_tokenizer(corpus, tmp_path / "t", make_config().data, 256)
    assert (report["kind"], report["vocab_size"]) == ("byte", 256)
    assert report["validation"]["bytes_per_token"] == 1.0
    with pytest.raises(DataError, match=r"vocab_size=300.*256"):
        build_tokenizer(corpus, tmp_path / "u", make_config().data, 300)
