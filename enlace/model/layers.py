"""Las piezas del modelo: RMSNorm, RoPE, atención con GQA, SwiGLU y el bloque que las une.

Letras de forma: B secuencias, T tokens, S tokens que pueden ser vistos, E d_model, H cabezas de
consulta, K cabezas de clave y valor, D head_dim.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from enlace.config.schema import ModelConfig
from enlace.model.cache import KVCache
from enlace.model.functions import gated_silu, rms_norm, rotate


def build_rope_cache(seq_len: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Tablas (cos, sin) de RoPE, cada una (seq_len, head_dim) en fp32.

    El ángulo de la posición p y el par i es p·θ^(−2i/D); las dos mitades de cada fila son iguales.
    Se calcula en fp32, como en transformers, para dar los mismos ángulos hasta el último bit.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / theta**exponents
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequencies)
    angles_TD = torch.cat((angles, angles), dim=-1)
    return angles_TD.cos(), angles_TD.sin()


def apply_rope(
    x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """Gira cada par (i, i + D/2) de x (B, H, T, D); calcula en fp32 y devuelve `dtype`, o el de x.

    Las tablas son filas de `build_rope_cache`.
    """
    return rotate(x_BHTD, cos_TD, sin_TD, dtype or x_BHTD.dtype)


def compute_dtype(device_type: str) -> torch.dtype:
    """El dtype de los productos de matrices: el de autocast si está activo; si no, fp32."""
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return torch.float32


def recomputed(
    function: Callable[..., Tensor], *inputs: Tensor | None, has_dropout: bool
) -> Tensor:
    """`function(*inputs)` sin guardar nada de dentro: se vuelve a calcular hacia atrás.

    El azar se repite si hay dropout; sin él se ahorra guardar su estado. Autocast se restablece
    como estaba. El resultado no cambia, porque las operaciones son las mismas.
    """
    output: Tensor = checkpoint(
        function, *inputs, use_reentrant=False, preserve_rng_state=has_dropout
    )
    return output


class RMSNorm(nn.Module):
    """x / √(media(x²) + eps) · peso, sobre la última dimensión.

    Calcula y devuelve fp32 sea cual sea la entrada: x² desborda fp16 desde |x| = 256, y autocast en
    CPU no lo evita. Quien la usa redondea el resultado, una vez.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """De (..., width) en cualquier precisión a (..., width) en fp32."""
        return rms_norm(x.float(), self.weight, self.eps)


class Attention(nn.Module):
    """Atención causal con GQA, RoPE y, si se pide, QK-norm."""

    def __init__(self, config: ModelConfig, layer: int, expand_kv: bool) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.n_rep = config.n_head // config.n_kv_head
        self.expand_kv = expand_kv
        kv_width = config.n_kv_head * config.head_dim
        self.wq = nn.Linear(config.d_model, config.d_model, bias=False)
        self.wk = nn.Linear(config.d_model, kv_width, bias=False)
        self.wv = nn.Linear(config.d_model, kv_width, bias=False)
        self.wo = nn.Linear(config.d_model, config.d_model, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None

    def forward(
        self,
        x_BTE: Tensor,
        cos_TD: Tensor,
        sin_TD: Tensor,
        mask_B1TS: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """De (B, T, E) a (B, T, E), en el dtype de x; con caché, x sigue a lo que ella guarda.

        La máscara aditiva (ver `enlace.model.documents`) ya es causal; sin ella la atención lo es.
        """
        q = self.wq(x_BTE).unflatten(-1, (-1, self.head_dim))
        k = self.wk(x_BTE).unflatten(-1, (-1, self.head_dim))
        v_BKTD = self.wv(x_BTE).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q_BHTD = apply_rope(q.transpose(1, 2), cos_TD, sin_TD, v_BKTD.dtype)
        k_BKTD = apply_rope(k.transpose(1, 2), cos_TD, sin_TD, v_BKTD.dtype)
        if cache is not None:
            k_BKTD, v_BKTD = cache.extend(self.layer, k_BKTD, v_BKTD)
        # Un solo token nuevo ve todo el pasado: no hay nada que enmascarar. Sin caché no se mira la
        # longitud, que para torch.compile puede ser un símbolo.
        is_causal = mask_B1TS is None and (cache is None or x_BTE.shape[1] > 1)
        y_BHTD = self._attend(q_BHTD, k_BKTD, v_BKTD, mask_B1TS, is_causal)
        y_BTE: Tensor = self.wo(y_BHTD.transpose(1, 2).flatten(2))
        return y_BTE

    def _attend(
        self,
        q_BHTD: Tensor,
        k_BKTD: Tensor,
        v_BKTD: Tensor,
        mask_B1TS: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """La cabeza de consulta h atiende a la de clave y valor h // n_rep."""
        if self.expand_kv and self.n_rep > 1:
            k_BKTD = k_BKTD.repeat_interleave(self.n_rep, dim=1)
            v_BKTD = v_BKTD.repeat_interleave(self.n_rep, dim=1)
        return F.scaled_dot_product_attention(
            q_BHTD,
            k_BKTD,
            v_BKTD,
            attn_mask=mask_B1TS,
            is_causal=is_causal,
            enable_gqa=self.n_rep > 1 and not self.expand_kv,
        )


class SwiGLU(nn.Module):
    """w_down(silu(w_gate·x) · (w_up·x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_gate = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.w_up = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.w_down = nn.Linear(config.ffn_dim, config.d_model, bias=False)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """De (B, T, E) a (B, T, E), en el dtype de x."""
        y_BTE: Tensor = self.w_down(gated_silu(self.w_gate(x_BTE), self.w_up(x_BTE)))
        return y_BTE


class Block(nn.Module):
    """x + atención(norma(x)) y después x + SwiGLU(norma(x)), con la suma en fp32.

    Con `recompute_mlp`, al entrenar no guarda nada de la segunda mitad salvo su entrada, y la
    vuelve a calcular hacia atrás: las mismas cuentas y los mismos gradientes.
    """

    def __init__(
        self, config: ModelConfig, layer: int, expand_kv: bool, recompute_mlp: bool = False
    ) -> None:
        super().__init__()
        self.recompute_mlp = recompute_mlp
        self.attn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attn = Attention(config, layer, expand_kv)
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = SwiGLU(config)
        self.dropout = config.dropout

    def forward(
        self,
        x_BTE: Tensor,
        cos_TD: Tensor,
        sin_TD: Tensor,
        mask_B1TS: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """De (B, T, E) fp32 a (B, T, E) fp32; `mask_B1TS` y `cache`, como en `Attention`."""
        dtype = compute_dtype(x_BTE.device.type)
        attended = self.attn(self.attn_norm(x_BTE).to(dtype), cos_TD, sin_TD, mask_B1TS, cache)
        x_BTE = x_BTE + F.dropout(attended, self.dropout, self.training)
        if self.recompute_mlp and self.training and torch.is_grad_enabled():
            return x_BTE + recomputed(self._feed_forward, x_BTE, has_dropout=self.dropout > 0)
        return x_BTE + self._feed_forward(x_BTE)

    def _feed_forward(self, x_BTE: Tensor) -> Tensor:
        normed_BTE = self.mlp_norm(x_BTE).to(compute_dtype(x_BTE.device.type))
        return F.dropout(self.mlp(normed_BTE), self.dropout, self.training)
