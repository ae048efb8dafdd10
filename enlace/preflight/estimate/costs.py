"""El trabajo de una operación: qué tipo de núcleo la hace, cuántos FLOP y cuántos bytes mueve.

Letras de forma: B secuencias, H cabezas, T tokens, D head_dim; m, n y k de un producto.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["gemm", "gemm_fp32", "attention", "pointwise"]
_aten = torch.ops.aten
_ATTENTION_BACKWARD_RATIO = 2.5
"""Hacia atrás se hacen cinco productos T×T donde hacia delante dos: se recalculan los logits
(FlashAttention-2, arXiv 2307.08691, apartado 3.1)."""
_ATTENTION = {
    "aten::_scaled_dot_product_efficient_attention": 1.0,
    "aten::_scaled_dot_product_flash_attention": 1.0,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 1.0,
    "aten::_scaled_dot_product_efficient_attention_backward": _ATTENTION_BACKWARD_RATIO,
    "aten::_scaled_dot_product_flash_attention_backward": _ATTENTION_BACKWARD_RATIO,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _ATTENTION_BACKWARD_RATIO,
}
_PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::baddbmm"}
_ONLY_MEMORY = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::detach",
    "aten::scalar_tensor",
    "aten::split",
    "aten::split_with_sizes",
}


class Cost(NamedTuple):
    """Una llamada a un núcleo de la tarjeta."""

    kind: Kind
    flops: int
    bytes: int


def operation_cost(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], outputs: Sequence[Tensor]
) -> Cost | None:
    """El coste de una operación de ATen; None si solo cambia formas o pide memoria."""
    name: str = func._schema.name
    if name in _ONLY_MEMORY:
        return None
    inputs = list(_flat([*args, *kwargs.values()]))
    if _is_view(func, inputs, outputs):
        return None
    moved = sum(map(tensor_bytes, inputs)) + _written(func, args, kwargs, outputs)
    if name in _ATTENTION:
        is_backward = _ATTENTION[name] != 1
        masked = kwargs.get("attn_mask") is not None
        flops = attention_flops(args[1] if is_backward else args[0], masked)
        return Cost("attention", int(flops * _ATTENTION[name]), moved)
    if name in _PRODUCTS:
        left, right = [tensor for tensor in args if isinstance(tensor, Tensor)][-2:]
        # Sin núcleos tensoriales que valgan: los de Muon en fp32 no van como los de 16 bits.
        kind: Kind = "gemm_fp32" if left.dtype == torch.float32 else "gemm"
        return Cost(kind, 2 * left.numel() * right.shape[-1], moved)
    return Cost("pointwise", 0, moved)


def attention_flops(q_BHTD: Tensor, masked: bool) -> int:
    """FLOP hacia delante de los dos productos T×T: 4·B·H·T²·D, o la mitad si es causal.

    Con una máscara el núcleo no sabe qué bloques están vacíos y los hace todos.
    """
    return (4 if masked else 2) * q_BHTD.numel() * q_BHTD.shape[-2]


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes de los elementos de un tensor, sin contar lo que su storage tenga de más."""
    return tensor.numel() * tensor.element_size()


def _flat(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _flat(value)


def _is_view(func: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    if func._schema.is_mutable or not outputs:
        return False
    storages = [tensor.untyped_storage() for tensor in inputs]
    return all(any(out.untyped_storage() is one for one in storages) for out in outputs)


def _written(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], outputs: Sequence[Tensor]
) -> int:
    """Bytes que se escriben: las salidas o, si no devuelve ninguna, los argumentos que cambia."""
    if outputs:
        return sum(map(tensor_bytes, outputs))
    total = 0
    for position, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            total += sum(map(tensor_bytes, _flat([value])))
    return total
