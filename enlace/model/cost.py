"""Lo que cuesta un modelo —parámetros, FLOP y bytes—, calculado solo desde su configuración.

No importa torch ni mide nada: sirve para avisar antes de tener la máquina delante. Los bytes son de
tensores; el asignador de memoria, el contexto de CUDA y los espacios de trabajo van aparte, y solo
el preflight los mide.

Letras: E d_model, F anchura de la FFN, H y K cabezas de consulta y de clave y valor, D head_dim,
L capas, V vocabulario, S seq_len, N parámetros.
"""

from typing import Literal

from enlace.config.documents import DocumentMask
from enlace.config.schema import Checkpointing, ModelConfig

Dtype = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal["adamw", "muon"]

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def layer_matrix_parameters(model: ModelConfig) -> int:
    """Pesos de las matrices de una capa: 2E² + 2·E·K·D de atención y 3·E·F de SwiGLU."""
    kv_width = model.n_kv_head * model.head_dim
    attention = 2 * model.d_model**2 + 2 * model.d_model * kv_width
    return attention + 3 * model.d_model * model.ffn_dim


def parameter_count(model: ModelConfig) -> int:
    """Parámetros del modelo; embeddings y salida compartidos cuentan una vez."""
    norms = 2 * model.d_model + (2 * model.head_dim if model.qk_norm else 0)
    tables = 1 if model.tie_embeddings else 2
    return (
        model.n_layer * (layer_matrix_parameters(model) + norms)
        + model.d_model
        + tables * model.vocab_size * model.d_model
    )


def flops_per_token(model: ModelConfig) -> int:
    """FLOP útiles por token al entrenar con secuencias de seq_len, hacia delante y hacia atrás.

    6·(matrices) + 6·V·E de la salida + 6·L·S·E de atención. Cada peso de una matriz cuesta 2 FLOP
    hacia delante y 4 hacia atrás (Kaplan et al., arXiv 2001.08361, apéndice B). La atención entera
    serían 12·L·S·E (PaLM, arXiv 2204.02311, apéndice B); por ser causal se cuenta la mitad.
    Lo que quita `data.document_mask` depende del texto, y no se descuenta.
    No se cuenta lo que se recalcula, ni normas, RoPE o activaciones: es el numerador del MFU.
    """
    matrices = model.n_layer * layer_matrix_parameters(model) + model.vocab_size * model.d_model
    return 6 * matrices + 6 * model.n_layer * model.seq_len * model.d_model


def optimizer_bytes(model: ModelConfig, optimizer: Optimizer) -> int:
    """Bytes del estado del optimizador, en fp32.

    AdamW guarda dos momentos de cada parámetro, 8·N. Muon, uno de las matrices de las capas, que en
    lo demás es AdamW.
    """
    inner = model.n_layer * layer_matrix_parameters(model) if optimizer == "muon" else 0
    return 8 * parameter_count(model) - 4 * inner


def state_bytes(model: ModelConfig, optimizer: Optimizer) -> int:
    """Bytes de pesos, gradientes y optimizador en fp32: 16·N con AdamW."""
    return 8 * parameter_count(model) + optimizer_bytes(model, optimizer)


def checkpoint_bytes(model: ModelConfig, optimizer: Optimizer) -> int:
    """Bytes en disco de un checkpoint completo (pesos y optimizador): 12·N con AdamW."""
    return 4 * parameter_count(model) + optimizer_bytes(model, optimizer)


def newton_schulz_flops(model: ModelConfig, steps: int) -> int:
    """FLOP de los productos de Muon en un paso de optimizador: no dependen de los tokens.

    Cada iteración de una matriz m×n, con m ≤ n, hace tres productos: 2·m²·n (XXᵀ), 2·m³ (su
    cuadrado) y 2·m²·n (por X).
    """
    kv_width = model.n_kv_head * model.head_dim
    shapes = [(model.d_model, model.d_model)] * 2 + [(kv_width, model.d_model)] * 2
    shapes += [(model.d_model, model.ffn_dim)] * 3
    sides = [sorted(shape) for shape in shapes]
    products = sum(4 * small**2 * large + 2 * small**3 for small, large in sides)
    return steps * model.n_layer * products


def recompute_flops_per_token(model: ModelConfig, checkpointing: Checkpointing) -> int:
    """FLOP por token que añade volver a calcular activaciones hacia atrás.

    Con `mlp`, los dos primeros productos de la FFN, 4·E·F por capa; con `block`, toda la capa hacia
    delante menos su último producto: 2·(matrices − E·F) y 2·S·E de atención causal. w_down no se
    repite, porque nadie guarda su salida, salvo con dropout, cuya máscara depende de ella.
    """
    if checkpointing == "none":
        return 0
    last = model.d_model * model.ffn_dim
    repeated = 2 * last
    if checkpointing == "block":
        repeated = layer_matrix_parameters(model) - last + model.seq_len * model.d_model
    return 2 * model.n_layer * (repeated + (last if model.dropout else 0))


def layer_activation_bytes(
    model: ModelConfig, dtype: Dtype, expand_kv: bool, checkpointing: Checkpointing = "none"
) -> int:
    """Bytes que una capa guarda por token para la pasada hacia atrás.

    Con e bytes por elemento del cálculo: las dos entradas de RMSNorm en fp32 (8E) y sus salidas
    (2eE); la entrada de QK-norm en fp32 (4(H + K)D); q, k y v tal como los ve el núcleo de atención
    (con K expandido a H si `expand_kv`), su salida (eHD) y su logsumexp (4H); tres tensores de la
    FFN (3eF); y 1/rms de cada norma (4 por fila). Es lo que guardan los de
    `enlace.model.functions` y la atención fusionada. Con `mlp` falta lo de la FFN y su norma; con
    `block` solo queda la entrada de la capa.
    """
    if checkpointing == "block":
        return 4 * model.d_model
    size, width, heads = _BYTES[dtype], model.d_model, model.n_head
    kv_heads = heads if expand_kv else model.n_kv_head
    inputs = 8 * width
    norm = size * width + 4
    attention = size * (heads + 2 * kv_heads + heads) * model.head_dim + 4 * heads
    dropout = width if model.dropout else 0
    qk_norm = 0
    if model.qk_norm:
        qk_norm = (heads + model.n_kv_head) * (4 * model.head_dim + 4)
    feed_forward = _feed_forward_bytes(model, dtype) if checkpointing == "none" else 0
    return inputs + norm + attention + dropout + qk_norm + feed_forward


def recomputed_bytes(
    model: ModelConfig, dtype: Dtype, expand_kv: bool, checkpointing: Checkpointing
) -> int:
    """Bytes por token que reaparecen hacia atrás, de una capa cada vez, al recalcular."""
    if checkpointing == "none":
        return 0
    if checkpointing == "mlp":
        return _feed_forward_bytes(model, dtype)
    return layer_activation_bytes(model, dtype, expand_kv) - 4 * model.d_model


def activation_bytes(
    model: ModelConfig,
    micro_batch: int,
    dtype: Dtype,
    *,
    expand_kv: bool,
    checkpointing: Checkpointing = "none",
    document_mask: DocumentMask = "none",
) -> int:
    """Bytes de activaciones vivas en el pico de un micro-batch: al empezar la pasada hacia atrás.

    Args:
        model: la arquitectura.
        micro_batch: secuencias de seq_len tokens.
        dtype: precisión del cálculo.
        expand_kv: si la atención recibe las cabezas de clave y valor ya repetidas
            (`enlace.devices.attention.expands_kv`).
        checkpointing: qué se recalcula; cuenta lo que se guarda de todas las capas y lo que
            reaparece de una.
        document_mask: con `block` hay además una máscara de (micro_batch, seq_len, seq_len).
    """
    final_norm = 4 * model.d_model + _BYTES[dtype] * model.d_model + 4
    # Ids y objetivos en int64, y el logsumexp que guarda la pérdida.
    bookkeeping = 8 + 8 + 4 + (model.d_model if model.dropout else 0)
    per_token = model.n_layer * layer_activation_bytes(model, dtype, expand_kv, checkpointing)
    per_token += recomputed_bytes(model, dtype, expand_kv, checkpointing)
    if document_mask == "block":
        bookkeeping += _BYTES[dtype] * model.seq_len
    return micro_batch * model.seq_len * (per_token + final_norm + bookkeeping)


def _feed_forward_bytes(model: ModelConfig, dtype: Dtype) -> int:
    """Lo que guardan por token la segunda norma (sin su entrada), SwiGLU y su dropout."""
    mask = model.d_model if model.dropout else 0
    return _BYTES[dtype] * (model.d_model + 3 * model.ffn_dim) + 4 + mask


def cast_weight_bytes(model: ModelConfig, dtype: Dtype) -> int:
    """Bytes de las copias de 16 bits que autocast guarda de las matrices; 0 en fp32."""
    if dtype == "fp32":
        return 0
    matrices = model.n_layer * layer_matrix_parameters(model) + model.vocab_size * model.d_model
    return _BYTES[dtype] * matrices


def loss_bytes(model: ModelConfig, chunk_rows: int, dtype: Dtype) -> int:
    """Bytes transitorios de la pérdida por bloques: constantes, no crecen con el micro-batch.

    Logits y softmax fp32 de un bloque (8·chunk_rows·V; en CPU comparten sitio: la mitad) y el
    gradiente fp32 de la salida (4·V·E). En 16 bits hay otro igual al sumarle un bloque, y además el
    gradiente de los logits, ya redondeado.
    """
    chunk = chunk_rows * model.vocab_size
    table = 4 * model.vocab_size * model.d_model
    if dtype == "fp32":
        return table + 8 * chunk
    return (8 + _BYTES[dtype]) * chunk + 2 * table
