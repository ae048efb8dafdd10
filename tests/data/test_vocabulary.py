"""La etapa del tokenizador: muestra, medida y avisos."""

import json
from pathlib import Path

import pytest

from enlace.data.corpus import read_corpus
from enlace.data.preparation import build_corpus
from enlace.data.tokenizer import load_tokenizer
from enlace.data.vocabulary import build_tokenizer, sample_texts
from enlace.errors import DataError
from tests.data.builders import bpe, folder_bytes, stories, write_tree
from tests.support import make_config


def _corpus(folder: Path, count: int = 40) -> Path:
    write_tree(folder / "src", stories(count))
    build_corpus(folder / "src", folder / "corpus", make_config().data)
    return folder / "corpus"


def test_la_muestra_respeta_el_presupuesto_y_no_mira_la_validacion(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path)
    train = {document.text for document in read_corpus(corpus, "train")}
    total = sum(len(text.encode()) for text in train)
    assert set(sample_texts(corpus, total)) == train
    for budget in (1, 777, total // 2, total - 1):
        sample = list(sample_texts(corpus, budget))
        size = sum(len(text.encode()) for text in sample)
        assert budget - 3 <= size <= budget  # el corte pierde, como mucho, parte de un carácter
        assert all(any(text.startswith(piece) for text in train) for piece in sample)


def test_al_crecer_el_presupuesto_la_muestra_solo_gana_textos(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path)
    train = {document.text for document in read_corpus(corpus, "train")}
    small = set(sample_texts(corpus, 4000)) & train
    large = set(sample_texts(corpus, 12000)) & train
    assert small
    assert small < large


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
    assert measured["tokens"] == tokens
    assert measured["bytes_per_token"] == round(sum(len(t.encode()) for t in texts) / tokens, 4)
    assert measured["tokens_per_word"] > 1
    assert (report["vocab_size"], report["warnings"]) == (380, [])


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
