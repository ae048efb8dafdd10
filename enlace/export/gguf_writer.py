"""El modelo en GGUF, el formato de llama.cpp, LM Studio y Ollama.

Se escribe aquí porque el conversor de llama.cpp rechaza cualquier tokenizador recién entrenado: los
reconoce por una lista de resúmenes. Los tensores son los mismos, bit a bit, que daría él.
Especificación: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

from enlace.config.export import ExportConfig, GgufType
from enlace.data.bpe import PAD, SPECIAL_TOKENS
from enlace.export.source import Source
from enlace.export.templates import jinja_template
from enlace.files import atomic_file

Array = npt.NDArray[Any]
_PRE_TOKENIZER = "qwen2"
"""El nombre en llama.cpp de la expresión regular de `enlace.data.bpe`."""
_TYPES: dict[GgufType, tuple[str, str]] = {
    "f32": ("F32", "ALL_F32"),
    "f16": ("F16", "MOSTLY_F16"),
    "bf16": ("BF16", "MOSTLY_BF16"),
    "q8_0": ("Q8_0", "MOSTLY_Q8_0"),
    "q5_1": ("Q5_1", "MOSTLY_Q5_1"),
    "q5_0": ("Q5_0", "MOSTLY_Q5_0"),
    "q4_1": ("Q4_1", "MOSTLY_Q4_1"),
    "q4_0": ("Q4_0", "MOSTLY_Q4_0"),
}
"""El tipo de los tensores y el del fichero: `GGMLQuantizationType` y `LlamaFileType`."""
_WHOLE_MODEL = {"tok_emb": "token_embd", "norm": "output_norm", "lm_head": "output"}
_WITHIN_BLOCK = {
    "attn_norm": "attn_norm",
    "attn.wq": "attn_q",
    "attn.wk": "attn_k",
    "attn.wv": "attn_v",
    "attn.wo": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "mlp_norm": "ffn_norm",
    "mlp.w_gate": "ffn_gate",
    "mlp.w_up": "ffn_up",
    "mlp.w_down": "ffn_down",
}


class Vocabulary(NamedTuple):
    """Los tokens por id, su tipo en GGUF y las fusiones («a b») en su orden."""

    tokens: list[str]
    types: list[int]
    merges: list[str]


def gguf_name(source_name: str, dtype: GgufType) -> str:
    """El nombre del fichero, como lo escriben los demás: «demo-F16.gguf»."""
    return f"{source_name}-{dtype.upper()}.gguf"


def write_gguf(source: Source, path: Path, dtype: GgufType, settings: ExportConfig) -> None:
    """Escribe el modelo en `path`, entero o nada.

    Args:
        source: el modelo (`enlace.export.source.read_source`).
        path: el fichero.
        dtype: el tipo de las matrices; los vectores van siempre en F32.
        settings: el muestreo y la licencia que el fichero declara.
    """
    with atomic_file(path) as temporary:
        writer = gguf.GGUFWriter(temporary, "qwen3" if source.shape.qk_norm else "llama")
        _add_description(writer, source, dtype, settings)
        _add_architecture(writer, source)
        _add_tokenizer(writer, source)
        for name, values in gguf_tensors(source).items():
            data, kind = encoded(name, values, dtype)
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def gguf_tensors(source: Source) -> dict[str, Array]:
    """{nombre en GGUF: pesos en fp32}, ya en el orden de filas que espera la arquitectura."""
    shape = source.shape
    found: dict[str, Array] = {}
    for name, tensor in source.weights.items():
        values = tensor.detach().numpy()
        # La arquitectura llama gira pares contiguos y la qwen3, mitades, como nosotros. Sin este
        # cambio el modelo «casi» funciona: acierta cuatro de cada cinco tokens.
        if not shape.qk_norm and name.endswith(("attn.wq.weight", "attn.wk.weight")):
            heads = shape.n_head if name.endswith("wq.weight") else shape.n_kv_head
            values = interleaved(values, heads)
        found[_tensor_name(name)] = values
    return found


def interleaved(values: Array, heads: int) -> Array:
    """Las filas de cada cabeza, de [primera mitad, segunda mitad] a parejas alternas."""
    rows, columns = values.shape
    halves = values.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


def encoded(name: str, values: Array, dtype: GgufType) -> tuple[Array, gguf.GGMLQuantizationType]:
    """Los datos de un tensor y su tipo.

    Con cuatro o cinco bits, los embeddings van en Q8_0: son también la salida, y ahí se nota. Una
    matriz cuyas filas no se dividen en bloques va en F16, como hace llama.cpp.
    """
    if values.ndim == 1 or dtype == "f32":
        return values.astype(np.float32), gguf.GGMLQuantizationType.F32
    kind = gguf.GGMLQuantizationType[_TYPES[dtype][0]]
    if dtype.startswith(("q4", "q5")) and name in ("token_embd.weight", "output.weight"):
        kind = gguf.GGMLQuantizationType.Q8_0
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    if values.shape[-1] % block:
        kind = gguf.GGMLQuantizationType.F16
    return gguf.quants.quantize(values.astype(np.float32), kind), kind


def vocabulary(source: Source) -> Vocabulary:
    """El vocabulario, con tantas entradas como filas tiene el modelo.

    Los especiales son de tipo CONTROL, también los reservados: con otro tipo llama.cpp leería su
    texto como texto corriente y transformers no. Las filas sin token, UNUSED.
    """
    content = json.loads(source.tokenizer.to_json())
    known = {identifier: token for token, identifier in content["model"]["vocab"].items()}
    known |= {entry["id"]: entry["content"] for entry in content["added_tokens"]}
    rows = range(source.shape.vocab_size)
    special = range(len(SPECIAL_TOKENS))
    kinds = gguf.TokenType
    return Vocabulary(
        [known.get(row, f"<|unused_{row}|>") for row in rows],
        [
            int(kinds.CONTROL if row in special else kinds.NORMAL if row in known else kinds.UNUSED)
            for row in rows
        ],
        [
            merge if isinstance(merge, str) else " ".join(merge)
            for merge in content["model"]["merges"]
        ],
    )


def _tensor_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] != "blocks":
        return f"{_WHOLE_MODEL[parts[0]]}.weight"
    return f"blk.{parts[1]}.{_WITHIN_BLOCK['.'.join(parts[2:])]}.weight"


def _add_description(
    writer: gguf.GGUFWriter, source: Source, dtype: GgufType, settings: ExportConfig
) -> None:
    total = source.model.num_parameters()
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(source.name)
    writer.add_description(
        "Conversa en español." if source.chats else "Completa texto en español; no conversa."
    )
    writer.add_size_label(gguf.size_label(total, 0, 0, 0))
    writer.add_languages(["es"])
    if settings.license:
        writer.add_license(settings.license)
    writer.add_file_type(gguf.LlamaFileType[_TYPES[dtype][1]])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_sampling_temp(settings.temperature)
    writer.add_sampling_top_k(settings.top_k)
    writer.add_sampling_top_p(settings.top_p)
    writer.add_sampling_min_p(settings.min_p)
    writer.add_sampling_penalty_repeat(settings.repeat_penalty)


def _add_architecture(writer: gguf.GGUFWriter, source: Source) -> None:
    shape = source.shape
    writer.add_block_count(shape.n_layer)
    writer.add_context_length(shape.seq_len)
    writer.add_embedding_length(shape.d_model)
    writer.add_feed_forward_length(shape.ffn_dim)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_kv_head)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocab_size)


def _add_tokenizer(writer: gguf.GGUFWriter, source: Source) -> None:
    tokens, types, merges = vocabulary(source)
    tokenizer = source.tokenizer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokenizer.eos_id)
    writer.add_eos_token_id(source.end_ids[0])
    writer.add_eot_token_id(tokenizer.turn_end_id)
    writer.add_pad_token_id(SPECIAL_TOKENS.index(PAD))
    # Escrito aunque sea «no»: varios motores suponen que sí.
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(jinja_template(source.chats))
