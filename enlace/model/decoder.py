"""El modelo preparado para generar: los mismos pesos, colocados para leerlos una vez por token.

Generar un token lee todos los pesos y apenas calcula: el tiempo es el de traerlos de la memoria más
el de arrancar cada operación. Por eso:

- se unen las matrices que leen lo mismo: consultas, claves y valores; las dos primeras de la FFN;
- cada una se guarda en el orden en que el producto de una fila la recorre antes: traspuesta, salvo
  la última de la FFN, que tiene más entradas que salidas;
- el peso de cada RMSNorm va dentro de la matriz que la sigue;
- los resultados intermedios y sus vistas se preparan una vez y sirven para todos los tokens.

Son las cuentas de `Transformer` salvo el orden del redondeo.

Letras de forma: B secuencias, T tokens, N = B·T, S tokens que pueden ser vistos, E d_model, H
cabezas de consulta, K cabezas de clave y valor, R = H/K, D head_dim, F anchura de la FFN, V
vocabulario.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.model.cache import KVCache
from enlace.model.decoder_buffers import Buffers
from enlace.model.documents import block_mask, document_numbers
from enlace.model.huge_pages import in_huge_pages
from enlace.model.layers import Block
from enlace.model.transformer import Transformer


class _Layer:
    """Los pesos de un bloque.

    Attributes:
        w_qkv, w_out, w_gate_up, w_down: las matrices, (entrada, salida).
        qk_weight: los pesos de QK-norm, (H + K, D); None si no la hay.
    """

    def __init__(self, matrices: list[Tensor], qk_weight: Tensor | None) -> None:
        self.w_qkv, self.w_out, self.w_gate_up, down_EF = matrices
        self.w_down = down_EF.t()
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
        self.config = config = model.config
        self.dtype = dtype
        self.device = model.tok_emb.weight.device
        self._masks = model.document_mask != "none"
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        with torch.inference_mode():
            head_EV = _after_norm(model.lm_head.weight, model.norm.weight).t().to(dtype)
            matrices = [each for block in blocks for each in self._matrices(block)]
            *matrices, self._head_EV = in_huge_pages([*matrices, head_EV])
            self._layers = [
                _Layer(matrices[4 * index : 4 * index + 4], self._qk_weight(block))
                for index, block in enumerate(blocks)
            ]
            self._embedding_VE = model.tok_emb.weight.detach()
            half = config.head_dim // 2
            cos_TD, sin_TD = model.rope_cos[:, :half], model.rope_sin[:, :half]
            # Girar el par (a, b) es multiplicar a + ib por cos + i·sin.
            self._turn_TD = torch.complex(cos_TD, sin_TD)[:, None]
            floors = (
                math.sqrt(width * config.norm_eps) for width in (config.d_model, config.head_dim)
            )
            self._floor, self._qk_floor = (cos_TD.new_tensor(floor) for floor in floors)
        self._buffers: Buffers | None = None

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
        turn = self._turn_TD[cache.length : cache.length + length]
        turn = turn.repeat(batch, 1, 1) if batch > 1 else turn
        x_NE = F.embedding(ids_BT.flatten(), self._embedding_VE)
        work = self._buffers_for(batch, length, x_NE)
        for layer, views in zip(self._layers, cache.views(length), strict=True):
            self._project(x_NE, layer, turn, work)
            attended_NE = self._attend(work, mask, *views)
            self._add(x_NE, attended_NE, layer.w_out)
            torch.mm(_unit(x_NE, self._floor, work.normed), layer.w_gate_up, out=work.gate_up)
            self._add(x_NE, F.silu(work.gate, inplace=True).mul_(work.up), layer.w_down)
        cache.advance(length)
        last_BE = x_NE.view(batch, length, -1)[:, -1]
        return torch.mm(_unit(last_BE, self._floor).to(self.dtype), self._head_EV).float()

    def _project(self, x_NE: Tensor, layer: _Layer, turn: Tensor, work: Buffers) -> None:
        """Deja en `work` las consultas y claves, giradas, y los valores."""
        torch.mm(_unit(x_NE, self._floor, work.normed), layer.w_qkv, out=work.qkv)
        if work.wide is not work.qkv:
            work.wide.copy_(work.qkv)
        if layer.qk_weight is not None:
            _unit(work.qk, self._qk_floor, work.qk).mul_(layer.qk_weight)
        work.pairs.mul_(turn)

    def _attend(
        self, work: Buffers, mask: Tensor | None, new: Tensor, k_BKSD: Tensor, v_BKSD: Tensor
    ) -> Tensor:
        """La atención antes de su matriz de salida, (N, E), tras apuntar lo nuevo en la caché."""
        new.copy_(work.kv)
        batch, length = work.shape
        repeats = self.config.n_head // self.config.n_kv_head
        q_BTHD = work.q.to(self.dtype)
        if length == 1:
            # Las consultas que comparten clave hacen de tokens: no hay que repetir las claves.
            q_BKRD = q_BTHD.view(batch, -1, repeats, self.config.head_dim)
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

    def _buffers_for(self, batch: int, length: int, like: Tensor) -> Buffers:
        """Los de la llamada anterior si tienen la misma forma; los de un prompt no se guardan."""
        if self._buffers is not None and self._buffers.shape == (batch, length):
            return self._buffers
        buffers = Buffers(self.config, batch, length, self.dtype, like)
        if length == 1:
            self._buffers = buffers
        return buffers

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

    def _add(self, x_NE: Tensor, y_NF: Tensor, w_FE: Tensor) -> None:
        """Suma y·w a x, en fp32."""
        if self.dtype == torch.float32:
            x_NE.addmm_(y_NF, w_FE)
        else:
            x_NE.add_(torch.mm(y_NF, w_FE))

    def _matrices(self, block: Block) -> tuple[Tensor, ...]:
        attention, mlp, config = block.attn, block.mlp, self.config
        heads = [_paired(w.weight, config.head_dim) for w in (attention.wq, attention.wk)]
        w_qkv = _after_norm(torch.cat([*heads, attention.wv.weight]), block.attn_norm.weight)
        w_gate_up = _after_norm(
            torch.cat([mlp.w_gate.weight, mlp.w_up.weight]), block.mlp_norm.weight
        )
        matrices = (w_qkv.t(), attention.wo.weight.t(), w_gate_up.t(), mlp.w_down.weight)
        return tuple(matrix.to(self.dtype) for matrix in matrices)

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
        return torch.cat(rows) * math.sqrt(self.config.head_dim) if rows else None


def _unit(x: Tensor, floor: Tensor, out: Tensor | None = None) -> Tensor:
    """RMSNorm sin su peso ni la raíz de la anchura: x / √(Σx² + floor²), con floor² = anchura·eps.

    Así son tres operaciones de torch; con la media y `rsqrt`, seis.
    """
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.div(x, torch.hypot(norm, floor), out=out)


def _after_norm(matrix: Tensor, weight: Tensor) -> Tensor:
    """La matriz (salida, entrada) con lo que a `_unit` le falta para ser RMSNorm."""
    return matrix * (weight * math.sqrt(weight.shape[0]))


def _paired(rows: Tensor, width: int) -> Tensor:
    """Filas (heads·D, …) con cada par de RoPE, (i, i + D/2), en posiciones seguidas.

    El mismo cambio en consultas y claves no cambia su producto, y deja girar sin partir el vector.
    """
    halves: Tensor = rows.unflatten(0, (-1, 2, width // 2))
    return halves.transpose(1, 2).flatten(0, 2)
