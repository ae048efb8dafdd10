"""El modelo: un decodificador igual, peso por peso, a `Qwen3ForCausalLM` (sin QK-norm, a Llama).

Lo que lo distingue de un Transformer corriente (arXiv 1706.03762):

- RMSNorm antes de cada subcapa (arXiv 1910.07467), sin sesgos en ninguna parte;
- posiciones por rotación, RoPE (arXiv 2104.09864), en la variante de medias mitades de GPT-NeoX;
- RMSNorm de head_dim en consultas y claves, antes de rotar (QK-norm, arXiv 2302.05442);
- varias cabezas de consulta por cada una de clave y valor (GQA, arXiv 2305.13245);
- SwiGLU (arXiv 2002.05202); embeddings y salida compartidos (arXiv 1608.05859).

Precisión: pesos siempre en fp32. Bajo autocast, la corriente residual sigue en fp32; RMSNorm, RoPE,
softmax y la pérdida calculan en fp32, y se redondea una sola vez, a la entrada de cada producto.

Letras de forma: B secuencias, T tokens, E d_model, H cabezas de consulta, K cabezas de clave y
valor, D head_dim, F anchura de la FFN, V vocabulario.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from enlace.config.documents import DocumentMask
from enlace.config.schema import Checkpointing, ModelConfig
from enlace.devices.attention import expands_kv
from enlace.errors import CheckpointError
from enlace.model.cache import KVCache
from enlace.model.documents import block_mask, document_numbers
from enlace.model.generation import generate
from enlace.model.layers import (
    Block,
    RMSNorm,
    apply_rope,
    build_rope_cache,
    compute_dtype,
    recomputed,
)
from enlace.model.loss import LossSums, linear_cross_entropy
from enlace.model.sampling import Sampling

__all__ = ["Transformer", "apply_rope", "build_rope_cache", "expands_kv"]

_RESIDUAL_PROJECTIONS = ("attn.wo.weight", "mlp.w_down.weight")


class Transformer(nn.Module):
    """El modelo completo.

    Con `tie_embeddings`, `tok_emb` y `lm_head` son el mismo parámetro, y `state_dict()` lo lleva
    una sola vez, como `tok_emb.weight`; `load_state_dict(strict=True)` acepta ese diccionario y
    mantiene el parámetro único. Así un checkpoint nunca lo duplica ni lo separa.
    """

    rope_cos: Tensor
    rope_sin: Tensor

    def __init__(
        self,
        config: ModelConfig,
        sdpa_backend: str,
        loss_chunk_rows: int = 512,
        activation_checkpointing: Checkpointing = "none",
        document_mask: DocumentMask = "none",
        *,
        loss_chunk_columns: int | None = None,
    ) -> None:
        """Construye y da valor inicial a los pesos con el generador global de torch.

        Args:
            config: la arquitectura.
            sdpa_backend: núcleo de atención con el que se va a usar; el modelo solo decide con él
                cómo prepara las claves, y es quien entrena quien lo impone con `sdpa_kernel`.
            loss_chunk_rows: filas de logits que la pérdida calcula a la vez.
            activation_checkpointing: qué se vuelve a calcular hacia atrás en vez de guardarse, al
                entrenar: nada, la FFN de cada bloque o el bloque entero. No cambia el resultado.
            document_mask: si la atención se queda en el documento (ver `enlace.model.documents`),
                al entrenar, al validar y al generar.
            loss_chunk_columns: columnas de cada producto de la pérdida; sin ellas, todas.

        Raises:
            ConfigError: `sdpa_backend` no existe.
        """
        super().__init__()
        self.config = config
        self.loss_chunk_rows = loss_chunk_rows
        self.loss_chunk_columns = loss_chunk_columns
        self.document_mask = document_mask
        self.recompute_blocks = activation_checkpointing == "block"
        expand_kv, recompute_mlp = expands_kv(sdpa_backend), activation_checkpointing == "mlp"
        self.tok_emb = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(
            Block(config, layer, expand_kv, recompute_mlp) for layer in range(config.n_layer)
        )
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        cos_TD, sin_TD = build_rope_cache(config.seq_len, config.head_dim, config.rope_theta)
        self.register_buffer("rope_cos", cos_TD, persistent=False)
        self.register_buffer("rope_sin", sin_TD, persistent=False)
        self._tie()
        self.register_state_dict_post_hook(_drop_tied_copy)
        self.register_load_state_dict_pre_hook(_restore_tied_copy)
        self.register_load_state_dict_post_hook(lambda module, _: module._tie())
        self.initialize()

    def initialize(self, generator: torch.Generator | None = None) -> None:
        """Da a todos los pesos su valor inicial; con `generator`, desde su semilla.

        Normas a 1; matrices ~ N(0, init_std); las que escriben en la corriente residual, además,
        × 1/√(2·n_layer), para que su varianza no crezca con la profundidad (GPT-2).
        """
        std = self.config.init_std
        residual_std = std / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.ones_(parameter)
            else:
                is_residual = name.endswith(_RESIDUAL_PROJECTIONS)
                nn.init.normal_(
                    parameter, std=residual_std if is_residual else std, generator=generator
                )

    def forward(
        self, ids_BT: Tensor, targets_BT: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Logits o pérdida, según haya objetivos.

        Args:
            ids_BT: ids (B, T) int64, con T ≤ seq_len.
            targets_BT: objetivos (B, T) int64; −100 no cuenta.

        Returns:
            Sin objetivos, (logits (B, T, V) fp32, None). Con objetivos, (None, pérdida media por
            token, fp32): entrenando y con gradiente incluye la z-loss y es diferenciable; en modo
            eval o sin gradiente es la entropía cruzada sola. Si ninguno cuenta, vale 0.

        Raises:
            ValueError: más de seq_len tokens o, en CPU, ids u objetivos fuera del vocabulario.
        """
        if targets_BT is None:
            return self.lm_head(self.hidden_states(ids_BT)).float(), None
        sums = self.loss_sums(ids_BT, targets_BT)
        learning = self.training and torch.is_grad_enabled()
        return None, (sums.objective if learning else sums.ce) / sums.count.clamp(min=1)

    def loss_sums(self, ids_BT: Tensor, targets_BT: Tensor) -> LossSums:
        """Las sumas de la pérdida sobre (B, T), sin dividir: ver `LossSums`."""
        sums: LossSums = linear_cross_entropy(
            self.hidden_states(ids_BT).flatten(0, 1),
            self.lm_head.weight,
            targets_BT.flatten(),
            z_weight=self.config.z_loss_weight,
            chunk_rows=self.loss_chunk_rows,
            chunk_columns=self.loss_chunk_columns,
        )
        return sums

    def hidden_states(self, ids_BT: Tensor, cache: KVCache | None = None) -> Tensor:
        """Estados finales normalizados (B, T, E), en el dtype del cálculo."""
        start = 0 if cache is None else cache.length
        self._check_ids(ids_BT, start)
        end = start + ids_BT.shape[1]
        cos_TD, sin_TD = self.rope_cos[start:end], self.rope_sin[start:end]
        x_BTE = F.dropout(self.tok_emb(ids_BT), self.config.dropout, self.training)
        mask_B1TS = self._mask(ids_BT, cache)
        recompute = self.recompute_blocks and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            if cache is not None:
                # Sin pasar por `block.compile()`: la caché crece con cada token, y con ella cambia
                # la función compilada.
                x_BTE = block.forward(x_BTE, cos_TD, sin_TD, mask_B1TS, cache)
            elif recompute:
                inputs = (x_BTE, cos_TD, sin_TD, mask_B1TS)
                x_BTE = recomputed(block, *inputs, has_dropout=self.config.dropout > 0)
            else:
                x_BTE = block(x_BTE, cos_TD, sin_TD, mask_B1TS)
        if cache is not None:
            cache.advance(ids_BT.shape[1])
        normed_BTE: Tensor = self.norm(x_BTE)
        return normed_BTE.to(compute_dtype(x_BTE.device.type))

    def _mask(self, ids_BT: Tensor, cache: KVCache | None) -> Tensor | None:
        """La máscara de documentos (B, 1, T, S), una para todas las capas; None si no se pide."""
        if self.document_mask == "none":
            return None
        numbers_BT = numbers_BS = document_numbers(ids_BT)
        if cache is not None:
            numbers_BS = cache.extend_documents(numbers_BT)
            numbers_BT = numbers_BS[:, -ids_BT.shape[1] :]
        return block_mask(numbers_BT, numbers_BS, compute_dtype(ids_BT.device.type))

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """Una caché vacía para `batch` secuencias de hasta `capacity` tokens."""
        device = self.tok_emb.weight.device
        return KVCache(self.config, batch, capacity, device, compute_dtype(device.type))

    def next_logits(self, ids_BT: Tensor, cache: KVCache) -> Tensor:
        """Logits (B, V) fp32 de lo que sigue a los tokens de la caché y a `ids_BT`.

        Con la caché ya empezada se añade un token cada vez: la máscara causal de varios tokens
        supone que el primero es el de la posición 0.
        """
        if cache.length and ids_BT.shape[1] != 1:
            raise ValueError("con la caché empezada los tokens se añaden de uno en uno")
        last_BE = self.hidden_states(ids_BT, cache)[:, -1]
        logits_BV: Tensor = self.lm_head(last_BE)
        return logits_BV.float()

    def generate(
        self,
        ids_BT: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = 0,
        *,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        stop_ids: Sequence[int] = (),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """El prompt seguido de los ids generados: ver `enlace.model.generation.stream_ids`."""
        sampling = Sampling(temperature, top_k or 0, top_p, min_p, repetition_penalty)
        return generate(
            self, ids_BT, max_new_tokens, sampling, stop_ids=stop_ids, generator=generator
        )

    def num_parameters(self) -> int:
        """Parámetros del modelo; los compartidos cuentan una vez."""
        return sum(parameter.numel() for parameter in self.parameters())

    def _tie(self) -> None:
        if self.config.tie_embeddings:
            self.lm_head.weight = self.tok_emb.weight

    def _check_ids(self, ids_BT: Tensor, start: int) -> None:
        if ids_BT.ndim != 2:
            raise ValueError(
                f"ids tiene forma {tuple(ids_BT.shape)}; debe ser (secuencias, tokens)"
            )
        length, limit = start + ids_BT.shape[1], self.config.seq_len
        if length > limit:
            raise ValueError(
                f"una secuencia de {length} tokens supera seq_len={limit}; recórtala o usa un "
                "modelo con model.seq_len mayor"
            )
        # En GPU mirar los valores obligaría a esperarla; allí responde el flujo de datos.
        if ids_BT.device.type != "cpu" or torch.compiler.is_compiling() or not ids_BT.numel():
            return
        lowest, highest = (int(bound) for bound in ids_BT.aminmax())
        if lowest < 0 or highest >= self.config.vocab_size:
            raise ValueError(
                f"el id {lowest if lowest < 0 else highest} no está en el vocabulario (0 a "
                f"{self.config.vocab_size - 1}); comprueba que los ids son de este tokenizador"
            )


def _drop_tied_copy(
    module: Transformer, state: dict[str, Any], prefix: str, _metadata: dict[str, Any]
) -> None:
    """Quita de `state_dict()` el segundo nombre del parámetro compartido."""
    if module.config.tie_embeddings:
        state.pop(f"{prefix}lm_head.weight", None)


def _restore_tied_copy(module: Transformer, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Devuelve el segundo nombre antes de la carga estricta; rechaza uno con otro contenido."""
    embedding, head = (state.get(f"{prefix}{name}.weight") for name in ("tok_emb", "lm_head"))
    if not module.config.tie_embeddings or embedding is None:
        return
    if head is not None and not torch.equal(head, embedding):
        raise CheckpointError(
            "los pesos traen lm_head.weight distinto de tok_emb.weight y el modelo los comparte; "
            "carga con model.tie_embeddings: false"
        )
    state[f"{prefix}lm_head.weight"] = embedding
