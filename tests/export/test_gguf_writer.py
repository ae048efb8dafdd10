"""El GGUF: tensores, claves y vocabulario, leídos con la biblioteca de referencia."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from enlace.config.export import GgufType
from enlace.data.bpe import SPECIAL_TOKENS
from enlace.export.gguf_writer import encoded, gguf_name, interleaved, vocabulary, write_gguf
from enlace.export.source import Source
from enlace.export.templates import jinja_template
from enlace.model.hf_names import hf_name
from tests.export.support_export import SETTINGS, SHAPE, VOCABULARY, random_source

FORMATS: tuple[GgufType, ...] = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


def _written(source: Source, folder: Path, dtype: GgufType = "f32") -> gguf.GGUFReader:
    path = folder / "modelo.gguf"
    write_gguf(source, path, dtype, SETTINGS)
    return gguf.GGUFReader(path)


def _values(reader: gguf.GGUFReader) -> dict[str, Any]:
    return {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }


@pytest.mark.parametrize("tie_embeddings", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_los_nombres_son_los_que_da_la_biblioteca(
    qk_norm: bool, tie_embeddings: bool, tmp_path: Path
) -> None:
    source = random_source(model__qk_norm=qk_norm, model__tie_embeddings=tie_embeddings)
    kind = gguf.MODEL_ARCH.QWEN3 if qk_norm else gguf.MODEL_ARCH.LLAMA
    names = gguf.get_tensor_name_map(kind, source.shape.n_layer)
    expected = {names.get_name(hf_name(name), try_suffixes=(".weight",)) for name in source.weights}
    assert {tensor.name for tensor in _written(source, tmp_path).tensors} == expected
    assert ("output.weight" in expected) != tie_embeddings


@pytest.mark.parametrize("qk_norm", [True, False])
def test_en_f32_los_tensores_son_los_pesos(qk_norm: bool, tmp_path: Path) -> None:
    source = random_source(model__qk_norm=qk_norm)
    found = {t.name: t.data for t in _written(source, tmp_path).tensors}
    weights = {name: tensor.numpy() for name, tensor in source.weights.items()}
    np.testing.assert_array_equal(found["token_embd.weight"], weights["tok_emb.weight"])
    np.testing.assert_array_equal(found["output_norm.weight"], weights["norm.weight"])
    for ours, theirs, heads in (
        ("attn.wq", "attn_q", source.shape.n_head),
        ("attn.wk", "attn_k", source.shape.n_kv_head),
        ("attn.wv", "attn_v", 0),
        ("mlp.w_down", "ffn_down", 0),
    ):
        expected = weights[f"blocks.1.{ours}.weight"]
        if heads and not qk_norm:
            expected = _alternated(expected, heads)
        np.testing.assert_array_equal(found[f"blk.1.{theirs}.weight"], expected)


def _alternated(values: Any, heads: int) -> Any:
    """Fila a fila: la j de la primera mitad de cada cabeza va a 2j; la de la segunda, a 2j + 1."""
    rows = np.empty_like(values)
    head_dim = len(values) // heads
    for head in range(heads):
        for row in range(head_dim // 2):
            start = head * head_dim
            rows[start + 2 * row] = values[start + row]
            rows[start + 2 * row + 1] = values[start + head_dim // 2 + row]
    return rows


def test_alternar_no_pierde_filas() -> None:
    values = np.arange(24.0).reshape(12, 2)
    assert sorted(map(tuple, interleaved(values, 3))) == sorted(map(tuple, values))
    np.testing.assert_array_equal(interleaved(values, 3), _alternated(values, 3))


@pytest.mark.parametrize("chats", [True, False])
def test_las_claves_de_qwen3(chats: bool, tmp_path: Path) -> None:
    source = random_source(data__format="chat" if chats else "text")
    values = _values(_written(source, tmp_path, "q8_0"))
    tokens, types, merges = vocabulary(source)
    assert values == {
        "general.architecture": "qwen3",
        "general.type": "model",
        "general.name": "prueba",
        "general.description": (
            "Conversa en español." if chats else "Completa texto en español; no conversa."
        ),
        "general.size_label": gguf.size_label(source.model.num_parameters(), 0, 0, 0),
        "general.languages": ["es"],
        "general.file_type": 7,
        "general.quantization_version": 2,
        "general.sampling.temp": pytest.approx(0.7),
        "general.sampling.top_k": 40,
        "general.sampling.top_p": pytest.approx(0.95),
        "general.sampling.min_p": pytest.approx(0.05),
        "general.sampling.penalty_repeat": pytest.approx(1.1),
        "qwen3.block_count": 2,
        "qwen3.context_length": SHAPE["model.seq_len"],
        "qwen3.embedding_length": 64,
        "qwen3.feed_forward_length": source.shape.ffn_dim,
        "qwen3.attention.head_count": 4,
        "qwen3.attention.head_count_kv": 2,
        "qwen3.attention.key_length": 16,
        "qwen3.attention.value_length": 16,
        "qwen3.attention.layer_norm_rms_epsilon": pytest.approx(1e-4),
        "qwen3.rope.freq_base": 5000.0,
        "qwen3.rope.dimension_count": 16,
        "qwen3.vocab_size": VOCABULARY,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 3 if chats else 0,
        "tokenizer.ggml.eot_token_id": 3,
        "tokenizer.ggml.padding_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.chat_template": jinja_template(chats),
    }


def test_sin_qk_norm_es_llama_y_la_licencia_consta(tmp_path: Path) -> None:
    source = random_source(model__qk_norm=False)
    path = tmp_path / "modelo.gguf"
    write_gguf(source, path, "f16", SETTINGS.model_copy(update={"license": "cc-by-4.0"}))
    values = _values(gguf.GGUFReader(path))
    assert values["general.architecture"] == "llama"
    assert values["llama.rope.freq_base"] == 5000.0
    assert values["general.license"] == "cc-by-4.0"
    assert not [name for name in values if name.startswith("qwen3")]


def test_los_especiales_son_de_control_y_las_filas_de_sobra_no_se_usan() -> None:
    tokens, types, merges = vocabulary(random_source())
    kinds = gguf.TokenType
    assert tokens[: len(SPECIAL_TOKENS)] == list(SPECIAL_TOKENS)
    assert set(types[: len(SPECIAL_TOKENS)]) == {kinds.CONTROL}
    assert set(types[len(SPECIAL_TOKENS) :]) == {kinds.NORMAL}
    assert len(merges) == VOCABULARY - len(SPECIAL_TOKENS) - 256
    assert all(len(merge.split(" ")) == 2 for merge in merges)
    more = vocabulary(random_source(model__vocab_size=VOCABULARY + 3))
    assert more.tokens[:VOCABULARY] == tokens
    assert len(set(more.tokens)) == VOCABULARY + 3
    assert more.types[VOCABULARY:] == [kinds.UNUSED] * 3


@pytest.mark.parametrize("dtype", FORMATS)
def test_cada_formato_se_aproxima_a_los_pesos_lo_que_debe(dtype: GgufType, tmp_path: Path) -> None:
    source = random_source()
    bits = {"f32": 24, "f16": 11, "bf16": 8, "q8_0": 7, "q5_1": 4, "q5_0": 4}.get(dtype, 3)
    for tensor in _written(source, tmp_path, dtype).tensors:
        original = _original(source, tensor.name)
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(original.shape)
        worst = np.abs(found - original).max()
        assert worst <= np.abs(original).max() * 2.0**-bits, tensor.name
        if original.ndim == 1:
            assert worst == 0
        elif dtype.startswith("q") and "embd" not in tensor.name:
            assert tensor.tensor_type.name.lower() == dtype


def _original(source: Source, name: str) -> Any:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, source.shape.n_layer)
    theirs = {names.get_name(hf_name(n), try_suffixes=(".weight",)): n for n in source.weights}
    return source.weights[theirs[name]].numpy()


def test_lo_que_no_se_divide_en_bloques_va_en_f16_y_la_salida_nunca_en_cuatro_bits() -> None:
    kinds = gguf.GGMLQuantizationType
    odd, even = np.ones((4, 48), np.float32), np.ones((4, 64), np.float32)
    assert encoded("blk.0.attn_q.weight", odd, "q8_0")[1] == kinds.F16
    assert encoded("blk.0.attn_q.weight", even, "q4_0")[1] == kinds.Q4_0
    assert encoded("token_embd.weight", even, "q4_0")[1] == kinds.Q8_0
    assert encoded("output_norm.weight", even[0], "q4_0")[1] == kinds.F32


def test_el_mismo_modelo_da_los_mismos_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("uno.gguf", "dos.gguf"):
        write_gguf(random_source(), tmp_path / name, "q8_0", SETTINGS)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert gguf_name("demo", "q8_0") == "demo-Q8_0.gguf"
