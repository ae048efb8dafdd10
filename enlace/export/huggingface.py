"""La carpeta que abren transformers, vLLM, MLX y el Hub: pesos, configuración y tokenizador.

El modelo es, peso por peso, un `Qwen3ForCausalLM` con QK-norm y un `LlamaForCausalLM` sin ella
(`enlace/model/hf_names.py`). Lo que sigue es decirlo de manera que ninguna versión lo entienda mal.
"""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from enlace.config.schema import ExportConfig
from enlace.data.bpe import END_OF_TEXT, PAD, SPECIAL_TOKENS, TURN_END
from enlace.export.source import Source
from enlace.export.templates import jinja_template
from enlace.files import write_json, write_text
from enlace.model.hf_names import hf_name

WEIGHTS, CONFIG, GENERATION = "model.safetensors", "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"


def write_huggingface(source: Source, folder: Path, settings: ExportConfig) -> None:
    """Escribe en `folder` los ficheros de Hugging Face, con los pesos en fp32."""
    weights = {hf_name(name): tensor.contiguous() for name, tensor in source.weights.items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / CONFIG, model_config(source))
    write_json(folder / GENERATION, generation_config(source, settings))
    write_text(folder / TOKENIZER, source.tokenizer.to_json())
    write_json(folder / TOKENIZER_CONFIG, tokenizer_config(source))
    write_text(folder / CHAT_TEMPLATE, jinja_template(source.chats))


def model_config(source: Source) -> dict[str, Any]:
    """El `config.json`.

    `rope_theta` va dos veces: transformers 4 y Ollama solo leen la de arriba, y transformers 5
    prefiere la de `rope_parameters`. `head_dim` es obligatoria en Qwen3 (su valor por omisión es
    128). `torch_dtype` es el nombre antiguo de `dtype`.
    """
    shape = source.shape
    values: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM" if shape.qk_norm else "LlamaForCausalLM"],
        "model_type": "qwen3" if shape.qk_norm else "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.ffn_dim,
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_kv_head,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.seq_len,
        "initializer_range": shape.init_std,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": shape.tie_embeddings,
        "use_cache": True,
        "bos_token_id": source.tokenizer.eos_id,
        "eos_token_id": source.end_ids[0],
        "pad_token_id": SPECIAL_TOKENS.index(PAD),
        "dtype": "float32",
        "torch_dtype": "float32",
    }
    if not shape.qk_norm:
        return values | {"mlp_bias": False, "pretraining_tp": 1}
    return values | {
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": shape.n_layer,
        "layer_types": ["full_attention"] * shape.n_layer,
    }


def generation_config(source: Source, settings: ExportConfig) -> dict[str, Any]:
    """El `generation_config.json`: dónde parar y el muestreo que se propone."""
    ends = source.end_ids
    sampling: dict[str, Any] = {"do_sample": False}
    if settings.temperature > 0:
        sampling = {
            "do_sample": True,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": settings.min_p,
        }
    return {
        "bos_token_id": source.tokenizer.eos_id,
        "eos_token_id": ends if len(ends) > 1 else ends[0],
        "pad_token_id": SPECIAL_TOKENS.index(PAD),
        **sampling,
        "repetition_penalty": settings.repeat_penalty,
    }


def tokenizer_config(source: Source) -> dict[str, Any]:
    """El `tokenizer_config.json`.

    Sin `tokenizer_class`, transformers 5 carga el tokenizador de Qwen2, que tira nuestro
    pre-tokenizador y normaliza. Sin `model_input_names`, transformers 4 da `token_type_ids` y
    `generate` los rechaza. `bos_token` no se añade nunca al codificar: lo usa quien evalúa, para
    tener un principio que el modelo sí ha visto.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": source.shape.seq_len,
        "bos_token": END_OF_TEXT,
        "eos_token": TURN_END if source.chats else END_OF_TEXT,
        "pad_token": PAD,
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": jinja_template(source.chats),
    }
