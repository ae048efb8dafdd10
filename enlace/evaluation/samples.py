"""Muestras: el modelo continúa los principios de texto de la configuración."""

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import torch

from enlace.backends import Backend
from enlace.config.schema import EvaluationConfig
from enlace.data.tokenizer import Tokenizer
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
    model: Transformer, tokenizer: Tokenizer, evaluation: EvaluationConfig, backend: Backend
) -> list[Sample]:
    """Continúa cada principio de `evaluation.prompts`, en su orden.

    El azar de cada muestra sale de la semilla y de su propio principio: quitar o mover uno no
    cambia la continuación de los demás, y dos principios no comparten sorteos (un modelo que
    empieza escribiría con ellos casi lo mismo).

    Args:
        model: el modelo, en el dispositivo de `backend`.
        tokenizer: el tokenizador con que se entrenó.
        evaluation: principios, tokens nuevos, temperatura (0: voraz), top_k (0: todos) y semilla.
        backend: dispositivo, autocast y atención.

    Raises:
        ConfigError: si un principio y su continuación no caben en `model.seq_len`.
    """
    encoded = [encode_prompt(tokenizer, prompt) for prompt in evaluation.prompts]
    _check_lengths(encoded, evaluation, model.config.seq_len)
    with evaluation_mode(model), torch.no_grad(), backend.sdpa(), backend.autocast():
        return [
            _continue(model, tokenizer, prompt, ids, evaluation, backend.device)
            for prompt, ids in zip(evaluation.prompts, encoded, strict=True)
        ]


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Los ids de un principio, normalizado a NFC como el corpus."""
    return tokenizer.encode(unicodedata.normalize("NFC", prompt))


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
        stop_ids=(tokenizer.eos_id,),
        generator=generator,
    )
    new_ids: list[int] = output_BT[0, len(ids) :].tolist()
    finished = tokenizer.eos_id in new_ids
    shown = new_ids[: new_ids.index(tokenizer.eos_id)] if finished else new_ids
    return Sample(prompt, tokenizer.decode(shown), len(new_ids), finished)
