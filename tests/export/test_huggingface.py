"""La carpeta de Hugging Face: cada clave que alguna versión necesita, y la igualdad exacta."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from enlace.data.tokenizer import TextTokenizer
from enlace.export.huggingface import generation_config, write_huggingface
from enlace.export.proof import check_huggingface
from enlace.export.reference import Reference
from enlace.export.templates import jinja_template
from tests.export.support_export import SETTINGS, VOCABULARY, random_source, small_tokenizer


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("qk_norm", [True, False])
def test_config_json(qk_norm: bool, tmp_path: Path) -> None:
    source = random_source(model__qk_norm=qk_norm)
    write_huggingface(source, tmp_path, SETTINGS)
    own: dict[str, Any] = {"mlp_bias": False, "pretraining_tp": 1}
    if qk_norm:
        own = {
            "use_sliding_window": False,
            "sliding_window": None,
            "max_window_layers": 2,
            "layer_types": ["full_attention", "full_attention"],
        }
    assert _read(tmp_path / "config.json") == own | {
        "architectures": ["Qwen3ForCausalLM" if qk_norm else "LlamaForCausalLM"],
        "model_type": "qwen3" if qk_norm else "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": source.shape.ffn_dim,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-4,
        "rope_theta": 5000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 1,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


@pytest.mark.parametrize("chats", [True, False])
def test_los_ids_de_fin_y_el_tokenizador(chats: bool, tmp_path: Path) -> None:
    source = random_source(data__format="chat" if chats else "text")
    write_huggingface(source, tmp_path, SETTINGS)
    end = "<|im_end|>" if chats else "<|endoftext|>"
    assert _read(tmp_path / "config.json")["eos_token_id"] == (3 if chats else 0)
    assert _read(tmp_path / "generation_config.json")["eos_token_id"] == ([3, 0] if chats else 0)
    assert _read(tmp_path / "tokenizer_config.json") == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 256,
        "bos_token": "<|endoftext|>",
        "eos_token": end,
        "pad_token": "<|pad|>",
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": jinja_template(chats),
    }
    assert (tmp_path / "chat_template.jinja").read_text("utf-8") == jinja_template(chats)
    assert (tmp_path / "tokenizer.json").read_text("utf-8") == small_tokenizer().to_json()
    assert _read(tmp_path / "tokenizer.json")["normalizer"] is None
    assert _read(tmp_path / "tokenizer.json")["post_processor"] is None
    TextTokenizer.load(tmp_path)


def test_el_muestreo_propuesto_es_el_de_la_configuracion() -> None:
    source = random_source()
    proposed = generation_config(source, SETTINGS)
    assert {key: proposed[key] for key in ("do_sample", "temperature", "top_k", "min_p")} == {
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 40,
        "min_p": 0.05,
    }
    greedy = generation_config(source, SETTINGS.model_copy(update={"temperature": 0.0}))
    assert greedy["do_sample"] is False
    assert "temperature" not in greedy


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_los_pesos_compartidos_van_una_vez_y_el_fichero_se_dice_de_torch(
    tie_embeddings: bool, tmp_path: Path
) -> None:
    write_huggingface(random_source(model__tie_embeddings=tie_embeddings), tmp_path, SETTINGS)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        names = set(file.keys())
    assert ("lm_head.weight" in names) != tie_embeddings
    assert "model.layers.1.self_attn.q_norm.weight" in names


@pytest.mark.parametrize(
    "changes",
    [
        {"model__qk_norm": True, "data__format": "chat"},
        {"model__qk_norm": False, "model__tie_embeddings": False},
    ],
    ids=["qwen3", "llama"],
)
def test_transformers_dice_exactamente_lo_mismo(changes: dict[str, Any], tmp_path: Path) -> None:
    source = random_source(**changes)
    write_huggingface(source, tmp_path, SETTINGS)
    found = check_huggingface(Reference(source, ["Querida abuela:"]), tmp_path)
    assert found.logit_difference <= 1e-5
    assert (found.texts, found.ties) == (415, 0)
    assert found.positions > 500
    assert found.greedy_tokens > 50
