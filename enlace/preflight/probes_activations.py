"""La mayor activación de cada capa, con ganchos y sin gradiente, en un lote inventado.

En fp16 lo primero que desborda es el producto de SwiGLU, que crece con el cuadrado, y lo que sale
de él. Los máximos se quedan en el dispositivo hasta el final: leer cada uno lo pararía.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from enlace.data.streams import Batch
from enlace.model.layers import Block
from enlace.model.transformer import Transformer
from enlace.preflight.health import ActivationKind, ActivationPeak
from enlace.train.state import Training

_Site = tuple[ActivationKind, int | None]


def activation_peaks(training: Training, batch: Batch) -> tuple[ActivationPeak, ...]:
    """El máximo de |x| por clase y capa, en el orden en que se calculan.

    Args:
        training: el entrenamiento, sin compilar; no cambia.
        batch: un micro-batch (B, T).
    """
    model, backend = training.model, training.backend
    peaks: dict[_Site, Tensor] = {}
    with torch.no_grad(), backend.sdpa(), backend.autocast(), _watched(model, peaks):
        hidden_BTE = model.hidden_states(batch.ids.to(backend.device))
        # A trozos, como la pérdida: los logits de un lote entero no caben.
        for rows in hidden_BTE.flatten(0, 1).split(model.loss_chunk_rows):
            _keep(peaks, ("logits", None), model.lm_head(rows))
    largest = torch.stack([value.float() for value in peaks.values()]).cpu()
    return tuple(
        ActivationPeak(kind=kind, layer=layer, largest=_finite(value))
        for (kind, layer), value in zip(peaks, largest.tolist(), strict=True)
    )


@contextmanager
def _watched(model: Transformer, peaks: dict[_Site, Tensor]) -> Iterator[None]:
    handles = []
    for module, site, watches_input in _sites(model):
        keep = partial(_keep, peaks, site)
        if watches_input:
            handles.append(module.register_forward_pre_hook(_on_input(keep)))
        else:
            handles.append(module.register_forward_hook(_on_output(keep)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _sites(model: Transformer) -> Iterator[tuple[nn.Module, _Site, bool]]:
    """Qué módulos se miran y si lo que interesa es su entrada o su salida."""
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        attention, ffn = block.attn, block.mlp
        yield block.attn_norm, ("norma de atención", layer), False
        yield attention.q_norm or attention.wq, ("consulta", layer), False
        yield attention.k_norm or attention.wk, ("clave", layer), False
        yield attention.wo, ("atención", layer), True
        yield attention.wo, ("salida de atención", layer), False
        yield block.mlp_norm, ("norma de FFN", layer), False
        yield ffn.w_down, ("producto SwiGLU", layer), True
        yield ffn.w_down, ("salida de FFN", layer), False
        yield block, ("residuo", layer), False
    yield model.norm, ("norma final", None), False


def _keep(peaks: dict[_Site, Tensor], site: _Site, value: Tensor) -> None:
    low, high = value.detach().aminmax()
    largest = torch.maximum(-low, high).float()
    peaks[site] = torch.maximum(peaks[site], largest) if site in peaks else largest


def _on_input(keep: Callable[[Tensor], None]) -> Callable[..., None]:
    def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        keep(inputs[0])

    return hook


def _on_output(keep: Callable[[Tensor], None]) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> None:
        keep(output)

    return hook


def _finite(value: float) -> float | None:
    return value if -torch.inf < value < torch.inf else None
