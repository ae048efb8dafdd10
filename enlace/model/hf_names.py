"""Los nombres de los pesos en transformers (`Qwen3ForCausalLM` y `LlamaForCausalLM`)."""

import re

_WHOLE_MODEL = {
    "tok_emb.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "lm_head.weight": "lm_head.weight",
}
_WITHIN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
    "attn.wo": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.w_gate": "mlp.gate_proj",
    "mlp.w_up": "mlp.up_proj",
    "mlp.w_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """El nombre en transformers de un peso de `Transformer.state_dict()`.

    Los tensores se copian tal cual: ni se trasponen ni se permutan.

    Raises:
        KeyError: ningún peso del modelo se llama así.
    """
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)\.weight", name)
    if match is None or match[2] not in _WITHIN_BLOCK:
        raise KeyError(f"{name} no es un peso del modelo")
    return f"model.layers.{match[1]}.{_WITHIN_BLOCK[match[2]]}.weight"
