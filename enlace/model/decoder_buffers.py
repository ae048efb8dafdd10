"""Los resultados intermedios de un paso del `Decoder`, reservados una vez.

Con la memoria aún fría tras leer los pesos, pedir una vista cuesta lo que una suma pequeña: por eso
también las vistas se preparan antes.

Letras de forma: las de `enlace.model.decoder`.
"""

import torch
from torch import Tensor

from enlace.config.schema import ModelConfig


class Buffers:
    """Dónde deja sus resultados cada capa, y las vistas que hacen falta de ellos.

    Attributes:
        normed: (N, E), en el dtype de los productos.
        qkv, gate_up: lo que dan las matrices unidas, (N, (H + 2K)·D) y (N, 2F).
        wide: `qkv` en fp32; es el mismo tensor si ya lo está.
        qk, pairs: las consultas y claves de `wide`, (N, H + K, D), y sus pares como complejos.
        q: las consultas, (B, T, H, D).
        kv: las claves y valores, (2, B, K, T, D), como los guarda la caché.
        gate, up: las mitades de `gate_up`.
    """

    def __init__(
        self, config: ModelConfig, batch: int, length: int, dtype: torch.dtype, like: Tensor
    ) -> None:
        """Para `batch` secuencias de `length` tokens, en el dispositivo de `like`, que es fp32."""
        heads, groups, width = config.n_head, config.n_kv_head, config.head_dim
        rows, total = batch * length, heads + 2 * groups
        self.shape = (batch, length)
        self.normed = like.new_empty(rows, config.d_model, dtype=dtype)
        self.qkv = like.new_empty(rows, total * width, dtype=dtype)
        self.gate_up = like.new_empty(rows, 2 * config.ffn_dim, dtype=dtype)
        self.gate, self.up = self.gate_up.chunk(2, dim=1)
        self.wide = self.qkv.float()
        self.qk = self.wide.view(rows, total, width)[:, : heads + groups]
        self.pairs = torch.view_as_complex(self.qk.unflatten(2, (-1, 2)))
        self.q, kv = self.wide.view(batch, length, total, width).split((heads, 2 * groups), dim=2)
        self.kv = kv.unflatten(2, (2, groups)).permute(2, 0, 3, 1, 4)
