"""Muestras: el modelo continúa los principios de texto de la configuración."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import torch

from enlace.backends import Backend
from enlace.config.schema import EvaluationConfig
from enlace.data.chat import end_ids, render_question, turn_markers
from enlace.data.rules.characters import normalize_characters
from enlace.data.tokenizer import TextTokenizer, Tokenizer
from enlace.errors import ConfigError
from enlace.evaluation.loss import evaluation_mode
from enlace.files import sha256_json
from enlace.model.transformer import Transformer

_SEED_DIGITS = 15
"""Cifras hexadecimales de la semilla: 60 bits, que caben en un entero con signo."""


class Sample(NamedTuple):
    """Una continuación: el principio dado, lo que escribió el modelo y cómo acabó."""

    prompt: str
    continuation: str
    new_tokens: int
    finished: bool
    """Si el modelo dio por terminado el texto antes de agotar `max_new_tokens`."""


def generate_samples(
    model: Transformer,
    tokenizer: Tokenizer,
    evaluation: EvaluationConfig,
    backend: Backend,
    chat: bool = False,
) -> list[Sample]:
    """Continúa cada principio de `evaluation.prompts`, en su orden.

    Con `chat`, cada principio es el turno de un usuario y la continuación, la respuesta.

    El azar de cada muestra sale de la semilla y de su propio principio: quitar o mover uno no
    cambia la continuación de los demás, y dos principios no comparten sorteos (un modelo que
    empieza escribiría con ellos casi lo mismo).

    Args:
        model: el modelo, en el dispositivo de `backend`.
        tokenizer: el tokenizador con que se entrenó.
        evaluation: principios, tokens nuevos, temperatura (0: voraz), top_k (0: todos) y semilla.
        backend: dispositivo, autocast y atención.
        chat: si el modelo se entrenó con conversaciones (`data.format`: chat).

    Raises:
        ConfigError: si un principio y su continuación no caben en `model.seq_len`.
    """
    encoded = [encode_prompt(tokenizer, prompt, chat) for prompt in evaluation.prompts]
    _check_lengths(encoded, evaluation, model.config.seq_len)
    stop_ids = end_ids(tokenizer, chat)
    with evaluation_mode(model), torch.no_grad(), backend.sdpa(), backend.autocast():
        return [
            _continue(model, tokenizer, prompt, ids, stop_ids, evaluation, backend.device)
            for prompt, ids in zip(evaluation.prompts, encoded, strict=True)
        ]


def encode_prompt(tokenizer: Tokenizer, prompt: str, chat: bool = False) -> list[int]:
    """Los ids de un principio, normalizado como el corpus; con `chat`, dentro de la plantilla."""
    ids = tokenizer.encode(normalize_characters(prompt))
    if chat and isinstance(tokenizer, TextTokenizer):
        return render_question(ids, turn_markers(tokenizer))
    return ids


def _check_lengths(encoded: Iterable[list[int]], evaluation: EvaluationConfig, limit: int) -> None:
    for index, ids in enumerate(encoded):
        total = len(ids) + evaluation.max_new_tokens
        if total > limit:
            raise ConfigError(
                f"params.yaml: data.evaluation.prompts[{index}] ocupa {len(ids)} tokens y con "
                f"data.evaluation.max_new_tokens={evaluation.max_new_tokens} suma {total}, más que "
                f"model.seq_len={limit}; acorta el principio o baja max_new_tokens"
            )


def _continue(
    model: Transformer,
    tokenizer: Tokenizer,
    prompt: str,
    ids: list[int],
    stop_ids: list[int],
    evaluation: EvaluationConfig,
    device: torch.device,
) -> Sample:
    seed = int(sha256_json([evaluation.seed, prompt])[:_SEED_DIGITS], 16)
    generator = torch.Generator(device=device).manual_seed(seed)
    output_BT = model.generate(
        torch.tensor([ids], dtype=torch.int64, device=device),
        evaluation.max_new_tokens,
        evaluation.temperature,
        evaluation.top_k,
        stop_ids=stop_ids,
        generator=generator,
    )
    new_ids: list[int] = output_BT[0, len(ids) :].tolist()
    shown = list(itertools.takewhile(lambda token: token not in stop_ids, new_ids))
    finished = len(shown) < len(new_ids)
    # Al agotar los tokens, el último carácter puede haber quedado a medias.
    text = tokenizer.decode(shown) if finished else tokenizer.decode_begun(shown)
    return Sample(prompt, text, len(new_ids), finished)
