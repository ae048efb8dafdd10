"""El modelo preparado para generar: los mismos pesos, colocados para leerlos una vez por token.

Generar un token lee todos los pesos y apenas calcula: el tiempo es el de traerlos de la memoria.
Aquí cada matriz se guarda traspuesta, porque así el producto de una fila la recorre seguida, y se
unen las que leen lo mismo (consultas, claves y valores; las dos primeras de la FFN). El peso de
cada RMSNorm va dentro de la matriz que la sigue, y el de QK-norm, junto a la escala de la atención,
todas las cabezas a la vez. Son las cuentas de `Transformer` salvo el orden del redondeo.

Letras de forma: B secuencias, T tokens, N = B·T, S tokens que pueden ser vistos, E d_model, H
cabezas de consulta, K cabezas de clave y valor, D head_dim, F anchura de la FFN, V vocabulario.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.model.cache import KVCache
from enlace.model.documents import block_mask, document_numbers
from enlace.model.huge_pages import in_huge_pages
from enlace.model.layers import Block
from enlace.model.transformer import Transformer


class _Layer:
    """Los pesos de un bloque.

    Attributes:
        w_qkv, w_out, w_gate_up, w_down: las matrices, traspuestas, en el orden en que se usan.
        qk_weight: los pesos de QK-norm, (H + K, D); None si no la hay.
    """

    def __init__(self, matrices: list[Tensor], qk_weight: Tensor | None) -> None:
        self.w_qkv, self.w_out, self.w_gate_up, self.w_down = matrices
        self.qk_weight = qk_weight


class Decoder:
    """Un `Transformer` solo para generar. Copia los pesos: después se puede soltar el modelo."""

    training = False

    def __init__(self, model: Transformer, dtype: torch.dtype = torch.float32) -> None:
        """Prepara los pesos de `model` en su dispositivo.

        Args:
            model: el modelo; no se toca.
            dtype: el de los productos de matrices y la caché. Como con autocast, la corriente
                residual, las normas y la rotación van en fp32.
        """
        self.config = model.config
        self.dtype = dtype
        self.device = model.tok_emb.weight.device
        self._masks = model.document_mask != "none"
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        with torch.inference_mode():
            head_EV = (model.lm_head.weight * model.norm.weight).t().to(dtype)
            matrices = [each for block in blocks for each in self._matrices(block)]
            *matrices, self._head_EV = in_huge_pages([*matrices, head_EV])
            self._layers = [
                _Layer(matrices[4 * index : 4 * index + 4], self._qk_weight(block))
                for index, block in enumerate(blocks)
            ]
            self._embedding_VE = model.tok_emb.weight.detach()
            half = self.config.head_dim // 2
            cos_TD, sin_TD = model.rope_cos[:, :half], model.rope_sin[:, :half]
            # Girar el par (a, b) es multiplicar a + ib por cos + i·sin.
            self._turn_TD = torch.complex(cos_TD, sin_TD)[:, None]

    def train(self, mode: bool = True) -> object:
        """No hay modo de entrenamiento: está para parecerse a `Transformer`.

        Raises:
            ValueError: se pide entrenar.
        """
        if mode:
            raise ValueError("un Decoder solo genera; entrena con Transformer")
        return self

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """Una caché vacía para `batch` secuencias de hasta `capacity` tokens."""
        return KVCache(self.config, batch, capacity, self.device, self.dtype)

    @torch.inference_mode()
    def next_logits(self, ids_BT: Tensor, cache: KVCache) -> Tensor:
        """Logits (B, V) fp32 de lo que sigue a los tokens de la caché y a `ids_BT`."""
        batch, length = ids_BT.shape
        mask = self._mask(ids_BT, cache)
        turn_T1D = self._turn_TD[cache.length : cache.length + length]
        x_NE = self._embedding_VE[ids_BT.flatten()]
        for index, layer in enumerate(self._layers):
            attended_NE = self._attention(x_NE, index, layer, turn_T1D, mask, cache)
            x_NE = self._add(x_NE, attended_NE, layer.w_out)
            gate_NF, up_NF = torch.mm(self._normed(x_NE), layer.w_gate_up).chunk(2, dim=1)
            x_NE = self._add(x_NE, F.silu(gate_NF).mul_(up_NF), layer.w_down)
        cache.advance(length)
        last_BE = x_NE.view(batch, length, -1)[:, -1]
        return torch.mm(self._normed(last_BE), self._head_EV).float()

    def _attention(
        self,
        x_NE: Tensor,
        index: int,
        layer: _Layer,
        turn_T1D: Tensor,
        mask: Tensor | None,
        cache: KVCache,
    ) -> Tensor:
        """La atención antes de su matriz de salida, (N, E)."""
        config, length = self.config, turn_T1D.shape[0]
        heads, groups, width = config.n_head, config.n_kv_head, config.head_dim
        batch, repeats = x_NE.shape[0] // length, heads // groups
        qkv = torch.mm(self._normed(x_NE), layer.w_qkv).view(batch, length, -1, width)
        qk, v_BTKD = qkv.split((heads + groups, groups), dim=2)
        if layer.qk_weight is not None:
            qk = _unit(qk.float(), config.norm_eps).mul_(layer.qk_weight)
        pairs = torch.view_as_complex(qk.float().unflatten(3, (-1, 2)))
        turned = torch.view_as_real(pairs * turn_T1D).flatten(3).to(self.dtype)
        q_BTHD, k_BTKD = turned.split((heads, groups), dim=2)
        k_BKSD, v_BKSD = cache.extend(index, k_BTKD.transpose(1, 2), v_BTKD.transpose(1, 2))
        if length == 1:
            # Las consultas que comparten clave hacen de tokens: no hay que repetir las claves.
            q_BKRD = q_BTHD.reshape(batch, groups, repeats, width)
            y_BKRD = F.scaled_dot_product_attention(q_BKRD, k_BKSD, v_BKSD, attn_mask=mask)
            return y_BKRD.reshape(batch, -1)
        y_BHTD = F.scaled_dot_product_attention(
            q_BTHD.transpose(1, 2),
            k_BKSD.repeat_interleave(repeats, dim=1),
            v_BKSD.repeat_interleave(repeats, dim=1),
            attn_mask=mask,
            is_causal=mask is None,
        )
        return y_BHTD.transpose(1, 2).reshape(batch * length, -1)

    def _mask(self, ids_BT: Tensor, cache: KVCache) -> Tensor | None:
        """La máscara aditiva (B o 1, 1, T, S); None si sobra o si basta con la causal."""
        if self._masks:
            numbers_BT = document_numbers(ids_BT)
            numbers_BS = cache.extend_documents(numbers_BT)
            return block_mask(numbers_BS[:, -ids_BT.shape[1] :], numbers_BS, self.dtype)
        if ids_BT.shape[1] == 1 or not cache.length:
            return None
        numbers_1S = ids_BT.new_zeros(1, cache.length + ids_BT.shape[1])
        return block_mask(numbers_1S[:, cache.length :], numbers_1S, self.dtype)

    def _normed(self, x_NE: Tensor) -> Tensor:
        return _unit(x_NE, self.config.norm_eps).to(self.dtype)

    def _add(self, x_NE: Tensor, y_NF: Tensor, w_FE: Tensor) -> Tensor:
        """La suma x + y·w, en fp32."""
        if self.dtype == torch.float32:
            return torch.addmm(x_NE, y_NF, w_FE)
        return x_NE + torch.mm(y_NF, w_FE)

    def _matrices(self, block: Block) -> tuple[Tensor, ...]:
        attention, mlp, width = block.attn, block.mlp, self.config.head_dim
        heads = [_paired(w.weight, width) for w in (attention.wq, attention.wk)]
        w_qkv = torch.cat([*heads, attention.wv.weight]) * block.attn_norm.weight
        w_gate_up = torch.cat([mlp.w_gate.weight, mlp.w_up.weight]) * block.mlp_norm.weight
        matrices = (w_qkv, attention.wo.weight, w_gate_up, mlp.w_down.weight)
        return tuple(matrix.t().to(self.dtype) for matrix in matrices)

    def _qk_weight(self, block: Block) -> Tensor | None:
        norms = (
            (block.attn.q_norm, self.config.n_head),
            (block.attn.k_norm, self.config.n_kv_head),
        )
        rows = [
            _paired(norm.weight, self.config.head_dim).expand(count, -1)
            for norm, count in norms
            if norm is not None
        ]
        return torch.cat(rows) if rows else None


def _unit(x: Tensor, eps: float) -> Tensor:
    """Devuelve x / √(media(x²) + eps) sobre la última dimensión, con menos pasadas que torch."""
    scale: Tensor = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps).rsqrt_()
    return x * scale.unsqueeze(-1)


def _paired(rows: Tensor, width: int) -> Tensor:
    """Filas (heads·D, …) con cada par de RoPE, (i, i + D/2), en posiciones seguidas.

    El mismo cambio en consultas y claves no cambia su producto, y deja girar sin partir el vector.
    """
    halves: Tensor = rows.unflatten(0, (-1, 2, width // 2))
    return halves.transpose(1, 2).flatten(0, 2)
