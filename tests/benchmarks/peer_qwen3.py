"""El mismo modelo, hecho por transformers."""

from typing import Any

from enlace.config.schema import ModelConfig


def build_qwen3(config: ModelConfig) -> Any:
    """El mismo modelo, construido e iniciado por transformers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.ffn_dim,
            num_hidden_layers=config.n_layer,
            num_attention_heads=config.n_head,
            num_key_value_heads=config.n_kv_head,
            head_dim=config.head_dim,
            max_position_embeddings=config.seq_len,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tie_embeddings,
            attention_bias=False,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="sdpa",
        )
    )
