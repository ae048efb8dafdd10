"""Tokenizadores: plano de ids, ida y vuelta, especiales y repetibilidad."""

import hashlib
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models

from enlace.data.bpe import QWEN2_PATTERN, SPECIAL_TOKENS, train_bpe, unreachable_tokens
from enlace.data.encode import FastEncoder
from enlace.data.tokenizer import ByteTokenizer, TextTokenizer, load_tokenizer, save_tokenizer
from enlace.errors import DataError
from tests.data.builders import sentences

_TEXTS = [sentences(40, seed) for seed in range(12)]
_VOCAB = 400
_ANY = st.text(st.characters(codec="utf-8"))
_HOSTILE = st.lists(st.one_of(_ANY, st.sampled_from(SPECIAL_TOKENS))).map("".join)


@cache
def _trained() -> TextTokenizer:
    return TextTokenizer(train_bpe(_TEXTS, _VOCAB, 2))


@cache
def _fast() -> FastEncoder:
    return FastEncoder(_trained())


@pytest.fixture
def tokenizer() -> TextTokenizer:
    return _trained()


@pytest.fixture
def content() -> str:
    return _trained().to_json()


def test_el_plano_de_ids_es_el_acordado(tokenizer: TextTokenizer, content: str) -> None:
    reference = HFTokenizer.from_str(content)
    names = ["<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>"]
    names += [f"<|reserved_{n}|>" for n in range(4, 16)]
    assert [reference.id_to_token(n) for n in range(16)] == names
    assert tokenizer.vocab_size == _VOCAB
    for byte in range(256):
        symbol = reference.id_to_token(16 + byte)
        assert symbol is not None
        assert len(symbol) == 1
    assert len(json.loads(content)["model"]["merges"]) == _VOCAB - 16 - 256
    assert (tokenizer.eos_id, tokenizer.turn_start_id, tokenizer.turn_end_id) == (0, 2, 3)


def test_el_fichero_es_el_de_hf_con_el_patron_de_qwen2_y_sin_normalizador(content: str) -> None:
    value = json.loads(content)
    assert value["normalizer"] is None
    assert value["post_processor"] is None
    split, byte_level = value["pre_tokenizer"]["pretokenizers"]
    assert split["pattern"] == {"Regex": QWEN2_PATTERN}
    assert (split["behavior"], split["invert"]) == ("Isolated", False)
    assert (byte_level["add_prefix_space"], byte_level["use_regex"]) == (False, False)
    assert [token["content"] for token in value["added_tokens"]] == list(SPECIAL_TOKENS)


def test_transformers_carga_el_fichero_y_da_los_mismos_ids(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    save_tokenizer(tokenizer, tmp_path)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    text = "¡Qué más da! La cigüeña 123\n\nvolvió."
    assert fast(text)["input_ids"] == tokenizer.encode(text)


@given(_HOSTILE)
def test_ida_y_vuelta_exacta_y_sin_ids_especiales(text: str) -> None:
    tokenizer = _trained()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(16 <= identifier < _VOCAB for identifier in ids)
    assert tokenizer.encode_batch([text, "x"])[0] == ids
    assert tokenizer.encode_arrays([text])[0].tolist() == ids


@given(_HOSTILE)
def test_el_codificador_rapido_da_los_mismos_ids(text: str) -> None:
    texts = [text, "", "él"]
    fast, reference = _fast().encode_arrays(texts), _trained().encode_arrays(texts)
    assert [ids.tolist() for ids in fast] == [ids.tolist() for ids in reference]


def test_un_texto_especial_no_es_el_token_especial(tokenizer: TextTokenizer, content: str) -> None:
    text = "fin<|endoftext|>"
    assert 0 in HFTokenizer.from_str(content).encode(text).ids  # lo que haría HF por su cuenta
    assert 0 not in tokenizer.encode(text)
    assert 0 not in tokenizer.encode_batch([text])[0]


def test_descodificar_omite_los_especiales_solo_si_se_pide(tokenizer: TextTokenizer) -> None:
    ids = [*tokenizer.encode("hola"), 0]
    assert tokenizer.decode(ids) == "hola<|endoftext|>"
    assert tokenizer.decode(ids, skip_special=True) == "hola"
    assert tokenizer.decode([*ids, 399_999]) == "hola<|endoftext|>"


def test_un_texto_que_sigue_no_ensena_un_caracter_a_medias(tokenizer: TextTokenizer) -> None:
    text = "¿Ñu? 👩 —fin—"
    for each in (tokenizer, ByteTokenizer()):
        ids = each.encode(text)
        shown = [each.decode_begun(ids[:count]) for count in range(len(ids) + 1)]
        assert shown[-1] == text
        assert all(text.startswith(begun) for begun in shown)
        assert any("\ufffd" in each.decode(ids[:count]) for count in range(len(ids)))
        broken = [*each.encode("a"), each.encode("ñ")[-1], *each.encode("b")]
        if each.kind == "byte":
            assert each.decode_begun(broken) == each.decode(broken) == "a\ufffdb"
    special = [tokenizer.eos_id, *tokenizer.encode("año"), tokenizer.vocab_size + 5]
    assert tokenizer.decode_begun(special) == tokenizer.decode(special)


def test_entrenar_es_repetible_entre_procesos(content: str) -> None:
    code = (
        "import hashlib\n"
        "from enlace.data.bpe import train_bpe\n"
        "from tests.data.builders import sentences\n"
        "texts = [sentences(40, seed) for seed in range(12)]\n"
        f"print(hashlib.sha256(train_bpe(texts, {_VOCAB}, 2).encode()).hexdigest())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout.strip() == hashlib.sha256(content.encode()).hexdigest()


def test_la_huella_es_el_sha256_del_fichero(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    for each in (tokenizer, ByteTokenizer()):
        save_tokenizer(each, tmp_path)
        stored = (tmp_path / "tokenizer.json").read_bytes()
        loaded = load_tokenizer(tmp_path)
        assert loaded.kind == each.kind
        assert loaded.fingerprint == each.fingerprint == hashlib.sha256(stored).hexdigest()


def test_todo_token_es_alcanzable_y_uno_muerto_se_detecta(content: str) -> None:
    assert unreachable_tokens(HFTokenizer.from_str(content)) == []
    vocabulary = {"a": 0, "b": 1, "ab": 2, "ba": 3}
    dead = HFTokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    assert unreachable_tokens(dead) == ["ba"]


def test_un_texto_corto_encoge_el_vocabulario() -> None:
    tokenizer = TextTokenizer(train_bpe(["uno dos uno dos"], 1000, 2))
    assert 272 < tokenizer.vocab_size < 290
    assert tokenizer.decode(tokenizer.encode("tres ñ")) == "tres ñ"


def test_un_vocabulario_sin_sitio_para_los_bytes_se_rechaza() -> None:
    with pytest.raises(DataError, match=r"vocab_size=271.*272"):
        train_bpe(_TEXTS, 271, 2)


def test_un_tokenizador_ajeno_se_rechaza(content: str, tmp_path: Path) -> None:
    value = json.loads(content)
    value["normalizer"] = {"type": "NFC"}
    with pytest.raises(DataError, match="tiene normalizador"):
        TextTokenizer(json.dumps(value))
    value = json.loads(content.replace("<|im_end|>", "<|otro|>"))
    with pytest.raises(DataError, match=r"<\|im_end\|> tiene el id None"):
        TextTokenizer(json.dumps(value))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json no es un tokenizador"):
        load_tokenizer(tmp_path)
    with pytest.raises(DataError, match="entrena el tokenizador"):
        load_tokenizer(tmp_path / "nada")


@given(_ANY.map(lambda text: text.replace("\0", "")))
def test_bytes_ida_y_vuelta(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert bytes(ids) == text.encode("utf-8")
    assert tokenizer.eos_id not in ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_arrays([text])[0].tolist() == ids == tokenizer.encode_batch([text])[0]


def test_bytes_no_admite_nul_y_muestra_lo_que_no_es_utf8() -> None:
    tokenizer = ByteTokenizer()
    with pytest.raises(DataError, match="NUL en el byte 1"):
        tokenizer.encode("a\0b")
    assert tokenizer.decode([0xC3, 0xB1, 0xC3]) == "ñ\ufffd"
    assert tokenizer.decode([104, 0], skip_special=True) == "h"


def test_el_fichero_de_bytes_funciona_en_hf() -> None:
    tokenizer = ByteTokenizer()
    reference = HFTokenizer.from_str(tokenizer.to_json())
    text = "¡Ñandú! 日本 \t\n" + "".join(map(chr, range(1, 256)))
    assert reference.encode(text).ids == tokenizer.encode(text)
    assert reference.decode(reference.encode(text).ids) == text


def test_rehacer_el_codificador_no_cambia_ningun_id() -> None:
    texts = [f"¿Qué pasó en {year}? Nada: «la casa {year}»." for year in range(1900, 1960)]
    expected = _trained().encode_batch(texts)
    renewed = FastEncoder(_trained(), renewed=100)
    first = renewed._tokenizer
    assert [ids.tolist() for text in texts for ids in renewed.encode_arrays([text])] == expected
    assert renewed._tokenizer is not first
