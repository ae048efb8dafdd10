"""Español de verdad, cuando está a mano: `../shared/data/es_mini` no viene en el repositorio."""

from pathlib import Path

import pytest

from enlace.data.corpus import read_corpus
from enlace.data.shards import read_index, verify_shards
from enlace.data.tokenizer import load_tokenizer
from tests.data.builders import Prose, bpe, prepare

_ES_MINI = Path(__file__).parents[3] / "shared" / "data" / "es_mini"

pytestmark = pytest.mark.skipif(not _ES_MINI.is_dir(), reason="falta ../shared/data/es_mini")


def test_la_cadena_entera_con_texto_de_verdad(tmp_path: Path) -> None:
    changes = bpe(2000, **{"data.include": ["*.jsonl.gz"], "data.val_fraction": 0.1})
    changes |= {"data.tokenizer.train_megabytes": 0.3}
    files: dict[str, Prose] = {"val.jsonl.gz": (_ES_MINI / "val.jsonl.gz").read_bytes()}
    prepared = prepare(tmp_path, files, changes)
    index = verify_shards(prepared.shards)
    assert index == read_index(prepared.shards)
    tokenizer = load_tokenizer(prepared.tokenizer)
    assert tokenizer.vocab_size == 2000
    for document in read_corpus(prepared.corpus, "val"):
        assert tokenizer.decode(tokenizer.encode(document.text)) == document.text
    split = index.split("val")
    assert 2.5 < split.raw_bytes / split.tokens < 4.5
