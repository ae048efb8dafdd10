"""Tokenizadores ajenos: los mismos ids que su formato manda, y errores que se entienden."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from enlace.data.bpe import QWEN2_PATTERN, SPECIAL_TOKENS
from enlace.data.foreign import compare_tokenizers, load_foreign
from enlace.data.preparation.build import build_corpus
from enlace.data.tokenizer import TextTokenizer, byte_symbols, save_tokenizer, train_bpe
from enlace.errors import DataError
from enlace.reports.tokenizer import comparison_markdown
from tests.data.builders import sentences, stories, write_tree
from tests.support import make_config

_TEXTS = [sentences(40, seed) for seed in range(4)]


def _tekken(tokenizer: TextTokenizer) -> dict[str, Any]:
    """Nuestro vocabulario como `tekken.json`: bytes y rango de cada token, sin especiales."""
    bytes_of = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    vocabulary = json.loads(tokenizer.to_json())["model"]["vocab"]
    tokens = sorted(set(vocabulary) - set(SPECIAL_TOKENS), key=lambda token: vocabulary[token])
    return {
        "config": {
            "pattern": QWEN2_PATTERN,
            "default_vocab_size": len(tokens) + 10,
            "default_num_special_tokens": 10,
        },
        "vocab": [
            {
                "rank": rank,
                "token_bytes": base64.b64encode(
                    bytes(bytes_of[symbol] for symbol in token)
                ).decode(),
            }
            for rank, token in enumerate(tokens)
        ]
        + [{"rank": len(tokens) + extra, "token_bytes": "enp6enp6"} for extra in range(3)],
    }


def test_un_tekken_da_los_ids_de_sus_rangos(tmp_path: Path) -> None:
    ours = TextTokenizer(train_bpe(_TEXTS, 500, 2))
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(_tekken(ours)), encoding="utf-8")
    foreign = load_foreign(path)
    assert foreign.vocab_size == ours.vocab_size - len(SPECIAL_TOKENS)
    for text in (*_TEXTS, "¿Qué 日本?  zzzzzz\n\n<|endoftext|> it's"):
        shifted = [identifier - len(SPECIAL_TOKENS) for identifier in ours.encode(text)]
        assert foreign.encode(text) == shifted


def test_se_compara_con_otros_por_genero_y_en_la_misma_muestra(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", stories(30))
    build_corpus(tmp_path / "src", tmp_path / "corpus", make_config().data)
    ours = TextTokenizer(train_bpe(_TEXTS, 400, 2))
    save_tokenizer(ours, tmp_path / "tokenizer")
    save_tokenizer(TextTokenizer(train_bpe(_TEXTS, 300, 2)), tmp_path / "otro")
    others = [tmp_path / "tokenizer", tmp_path / "otro/tokenizer.json"]
    rows = compare_tokenizers(tmp_path / "corpus", tmp_path / "tokenizer", others)
    assert [row["name"] for row in rows] == ["este", "tokenizer", "otro"]
    mine, same, other = ({k: row[k] for k in ("validation", "genres")} for row in rows)
    assert mine == same
    assert other["validation"]["bytes"] == mine["validation"]["bytes"]
    assert other["validation"]["bytes_per_token"] < mine["validation"]["bytes_per_token"]
    page = comparison_markdown(rows)
    assert "otro (300 ids)" in page
    assert page.count("| todo |") == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": 3}', '{"config": {}, "vocab": []}'])
def test_lo_que_no_es_un_tokenizador_se_dice(tmp_path: Path, content: str) -> None:
    path = tmp_path / "otro.json"
    with pytest.raises(DataError, match=r"otro\.json .*revisa la ruta"):
        load_foreign(path)
    path.write_text(content)
    with pytest.raises(DataError, match=r"otro\.json no es un tokenizer\.json de Hugging Face ni"):
        load_foreign(path)
