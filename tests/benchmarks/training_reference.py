"""Un modelo de referencia en PyTorch corriente: el mismo que ENLACE, sin ninguna de sus ideas.

Los nombres y las formas de los pesos son los de `enlace.model.transformer.Transformer`, pero cada
operación es la más directa que hay en torch, y la pérdida forma los logits enteros.

Letras: B secuencias, T tokens, E d_model, H y K cabezas de consulta y de clave y valor, D head_dim.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from enlace.config.schema import ModelConfig


class Attention(nn.Module):
    """Atención causal con GQA, QK-norm y RoPE."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim, kv_width = config.head_dim, config.n_kv_head * config.head_dim
        self.wq = nn.Linear(config.d_model, config.d_model, bias=False)
        self.wk = nn.Linear(config.d_model, kv_width, bias=False)
        self.wv = nn.Linear(config.d_model, kv_width, bias=False)
        self.wo = nn.Linear(config.d_model, config.d_model, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.norm_eps)

    def forward(self, x_BTE: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
        B, T, _ = x_BTE.shape

        def heads(projection: Tensor) -> Tensor:
            return projection.view(B, T, -1, self.head_dim).transpose(1, 2)

        q_BHTD = rotate(self.q_norm(heads(self.wq(x_BTE))), cos_TD, sin_TD)
        k_BKTD = rotate(self.k_norm(heads(self.wk(x_BTE))), cos_TD, sin_TD)
        out_BHTD = F.scaled_dot_product_attention(
            q_BHTD, k_BKTD, heads(self.wv(x_BTE)), is_causal=True, enable_gqa=True
        )
        joined: Tensor = self.wo(out_BHTD.transpose(1, 2).reshape(B, T, -1))
        return joined


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_gate = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.w_up = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.w_down = nn.Linear(config.ffn_dim, config.d_model, bias=False)

    def forward(self, x_BTE: Tensor) -> Tensor:
        out_BTE: Tensor = self.w_down(F.silu(self.w_gate(x_BTE)) * self.w_up(x_BTE))
        return out_BTE


class Block(nn.Module):
    """Un bloque con norma previa."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attn_norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.attn = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x_BTE: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
        x_BTE = x_BTE + self.attn(self.attn_norm(x_BTE), cos_TD, sin_TD)
        out_BTE: Tensor = x_BTE + self.mlp(self.mlp_norm(x_BTE))
        return out_BTE


class Reference(nn.Module):
    """El modelo entero; devuelve los logits (B, T, V)."""

    rope_cos: Tensor
    rope_sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.RMSNorm(config.d_model, config.norm_eps)
        frequencies = config.rope_theta ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
        angles_TD = torch.outer(torch.arange(config.seq_len), frequencies).repeat(1, 2)
        self.register_buffer("rope_cos", angles_TD.cos(), persistent=False)
        self.register_buffer("rope_sin", angles_TD.sin(), persistent=False)

    def forward(self, ids_BT: Tensor) -> Tensor:
        x_BTE = self.tok_emb(ids_BT)
        for block in self.blocks:
            x_BTE = block(x_BTE, self.rope_cos, self.rope_sin)
        return F.linear(self.norm(x_BTE), self.tok_emb.weight)


def rotate(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """RoPE por medias mitades."""
    first, second = x_BHTD.chunk(2, -1)
    return x_BHTD * cos_TD + torch.cat((-second, first), -1) * sin_TD


def step_flops(config: ModelConfig, batch: int) -> int:
    """FLOP de un paso (hacia delante y hacia atrás) según el contador de torch, en `meta`.

    La atención se cuenta entera, sin descontar la mitad que la máscara causal anula.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model: Any = Reference(config)
        ids_BT = torch.zeros(batch, config.seq_len, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        logits_BTV = model(ids_BT)
        F.cross_entropy(logits_BTV.flatten(0, 1), ids_BT.flatten()).backward()
    return int(counter.get_total_flops())
