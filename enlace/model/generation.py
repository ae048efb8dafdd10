"""Generación de texto con caché, token a token, con el muestreo de `enlace.model.sampling`.

Letras de forma: B secuencias, T tokens, V vocabulario.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from enlace.config.schema import ModelConfig
from enlace.model.cache import KVCache
from enlace.model.sampling import Sampling, next_ids


class Predictor(Protocol):
    """Lo que hace falta para generar: lo tienen `Transformer` y `Decoder`."""

    config: ModelConfig
    training: bool

    def train(self, mode: bool = True) -> object:
        """Pone el modo de entrenamiento, o con False el de eval."""

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """Una caché vacía."""

    def next_logits(self, ids_BT: Tensor, cache: KVCache) -> Tensor:
        """Logits (B, V) fp32 de lo que sigue a la caché y a `ids_BT`."""


@torch.inference_mode()
def stream_ids(
    model: Predictor,
    ids_BT: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    *,
    stop_ids: Sequence[int] = (),
    generator: torch.Generator | None = None,
    cache: KVCache | None = None,
) -> Iterator[Tensor]:
    """Cede los ids nuevos (B,) según salen, con caché de claves y valores.

    Una secuencia que da un id de `stop_ids` repite ese id mientras las demás terminan; la
    generación acaba cuando todas han parado o tras `max_new_tokens`. El modelo se usa en modo eval
    y queda en el que estaba.

    Args:
        model: el modelo; si hay autocast, lo abre quien llama.
        ids_BT: prompts (B, T) int64, todos de la misma longitud y con T ≥ 1.
        max_new_tokens: tokens nuevos como máximo.
        sampling: qué filtros se aplican antes de sortear.
        stop_ids: ids que terminan una secuencia.
        generator: fuente de azar del muestreo, en el dispositivo del modelo; sin ella, la global.
        cache: la de los primeros tokens de `ids_BT`, si ya se calcularon; sin ella, una nueva.

    Raises:
        ValueError: argumento fuera de rango, o prompt + tokens nuevos por encima de seq_len.
    """
    _check_request(model, ids_BT, max_new_tokens)
    if max_new_tokens == 0:
        return
    batch, length = ids_BT.shape
    was_training = model.training
    model.train(False)
    try:
        if cache is None:
            cache = model.new_cache(batch, length + max_new_tokens)
        finished_B = torch.zeros(batch, dtype=torch.bool, device=ids_BT.device)
        stops = torch.tensor(list(stop_ids), dtype=ids_BT.dtype, device=ids_BT.device)
        context_BT = torch.cat([ids_BT, ids_BT.new_zeros(batch, max_new_tokens)], dim=1)
        pending_BT, last_B = ids_BT[:, cache.length :], ids_BT[:, -1]
        for end in range(length, length + max_new_tokens):
            logits_BV = model.next_logits(pending_BT, cache)
            new_B = next_ids(logits_BV, sampling, generator, context_BT[:, :end])
            last_B = torch.where(finished_B, last_B, new_B)
            context_BT[:, end] = last_B
            yield last_B
            if stops.numel():
                finished_B = finished_B | torch.isin(last_B, stops)
                if bool(finished_B.all()):
                    return
            pending_BT = last_B[:, None]
    finally:
        model.train(was_training)


def generate(
    model: Predictor,
    ids_BT: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    *,
    stop_ids: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Como `stream_ids`, pero devuelve de una vez (B, T + nuevos): el prompt y lo generado."""
    stream = stream_ids(
        model, ids_BT, max_new_tokens, sampling, stop_ids=stop_ids, generator=generator
    )
    return torch.cat([ids_BT, *(new_B[:, None] for new_B in stream)], dim=1)


def _check_request(model: Predictor, ids_BT: Tensor, max_new_tokens: int) -> None:
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens} debe ser 0 o mayor")
    if ids_BT.ndim != 2 or ids_BT.numel() == 0:
        raise ValueError(
            f"el prompt tiene forma {tuple(ids_BT.shape)} y debe ser (secuencias, tokens) con al "
            "menos un token; si está vacío, empieza por el id de fin de texto"
        )
    total, limit = ids_BT.shape[1] + max_new_tokens, model.config.seq_len
    if total > limit:
        raise ValueError(
            f"prompt ({ids_BT.shape[1]} tokens) + max_new_tokens ({max_new_tokens}) = {total} "
            f"supera seq_len={limit}; acorta el prompt o baja max_new_tokens"
        )
