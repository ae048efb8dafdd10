"""Generación de texto con caché: voraz o por muestreo, en el orden de transformers.

El orden es temperatura → top-k → softmax → muestreo, el de `TemperatureLogitsWarper` y
`TopKLogitsWarper`: con los mismos logits, las mismas probabilidades.

Letras de forma: B secuencias, T tokens, V vocabulario.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from enlace.model.transformer import Transformer

_GREEDY_BELOW = 1e-30


def warp_logits(logits_BV: Tensor, temperature: float, top_k: int) -> Tensor:
    """Logits (B, V) en fp32 tras temperatura y top-k; los descartados valen −inf.

    Los empates con el k-ésimo se conservan, como en transformers. `top_k` 0 los deja todos.
    """
    logits_BV = logits_BV.float() / temperature
    if top_k:
        smallest_B1 = logits_BV.topk(min(top_k, logits_BV.shape[-1]), dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < smallest_B1, float("-inf"))
    return logits_BV


def next_ids(
    logits_BV: Tensor, temperature: float, top_k: int, generator: torch.Generator | None
) -> Tensor:
    """Los ids siguientes (B,) int64: el mayor logit con temperatura 0; si no, una muestra.

    Una temperatura tan pequeña que desbordaría los logits en fp32 cuenta como 0, que es su límite.
    """
    if temperature < _GREEDY_BELOW:
        return logits_BV.argmax(dim=-1)
    probabilities_BV = warp_logits(logits_BV, temperature, top_k).softmax(dim=-1)
    return torch.multinomial(probabilities_BV, 1, generator=generator).squeeze(1)


@torch.inference_mode()
def stream_ids(
    model: "Transformer",
    ids_BT: Tensor,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    *,
    stop_ids: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Iterator[Tensor]:
    """Cede los ids nuevos (B,) según salen, con caché de claves y valores.

    Una secuencia que da un id de `stop_ids` repite ese id mientras las demás terminan; la
    generación acaba cuando todas han parado o tras `max_new_tokens`. El modelo se usa en modo eval
    y queda en el que estaba.

    Args:
        model: el modelo; si hay autocast, lo abre quien llama.
        ids_BT: prompts (B, T) int64, todos de la misma longitud y con T ≥ 1.
        max_new_tokens: tokens nuevos como máximo.
        temperature: 0 elige siempre el mayor logit; 1 no cambia las probabilidades.
        top_k: candidatos por token (0: todos).
        stop_ids: ids que terminan una secuencia.
        generator: fuente de azar del muestreo, en el dispositivo del modelo; sin ella, la global.

    Raises:
        ValueError: argumento fuera de rango, o prompt + tokens nuevos por encima de seq_len.
    """
    _check_request(model, ids_BT, max_new_tokens, temperature, top_k)
    if max_new_tokens == 0:
        return
    batch, length = ids_BT.shape
    was_training = model.training
    model.eval()
    try:
        cache = model.new_cache(batch, length + max_new_tokens)
        finished_B = torch.zeros(batch, dtype=torch.bool, device=ids_BT.device)
        stops = torch.tensor(list(stop_ids), dtype=ids_BT.dtype, device=ids_BT.device)
        pending_BT, last_B = ids_BT, ids_BT[:, -1]
        for _ in range(max_new_tokens):
            logits_BV = model.next_logits(pending_BT, cache)
            new_B = next_ids(logits_BV, temperature, top_k, generator)
            last_B = torch.where(finished_B, last_B, new_B)
            yield last_B
            if stops.numel():
                finished_B = finished_B | torch.isin(last_B, stops)
                if bool(finished_B.all()):
                    return
            pending_BT = last_B[:, None]
    finally:
        model.train(was_training)


def generate(
    model: "Transformer",
    ids_BT: Tensor,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    *,
    stop_ids: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Como `stream_ids`, pero devuelve de una vez (B, T + nuevos): el prompt y lo generado."""
    stream = stream_ids(
        model,
        ids_BT,
        max_new_tokens,
        temperature,
        top_k,
        stop_ids=stop_ids,
        generator=generator,
    )
    return torch.cat([ids_BT, *(new_B[:, None] for new_B in stream)], dim=1)


def _check_request(
    model: "Transformer", ids_BT: Tensor, max_new_tokens: int, temperature: float, top_k: int
) -> None:
    for name, value in (
        ("max_new_tokens", max_new_tokens),
        ("temperature", temperature),
        ("top_k", top_k),
    ):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name}={value} debe ser un número finito, 0 o mayor")
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
