"""De un jsonl de conversaciones a un modelo que contesta: todo el camino, en diminuto."""

import json
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from enlace.backends import open_device
from enlace.data.shards import read_index
from enlace.data.streams import open_stream, validation_batches
from enlace.data.tokenizer import TextTokenizer
from enlace.evaluation.byte_counts import bytes_per_id
from enlace.evaluation.loss import evaluate_loss
from enlace.evaluation.samples import generate_samples
from enlace.train.trainer import build_training, train_step
from tests.data.builders import Prepared, bpe, prepare

_STEPS = 30
_NAMES = ("Íñigo", "Ana", "Luz", "Tomás", "Nuria", "Saúl", "Inés", "Raúl")
_ANSWER = "¡Muy bien, gracias!"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Preguntas que no se pueden adivinar y una respuesta que sí."""
    records = [
        {
            "conversations": [
                {"from": "human", "value": f"{_NAMES[n % 8]} {n * 7919 % 1000}, ¿qué tal?"},
                {"from": "gpt", "value": _ANSWER},
            ]
        }
        for n in range(160)
    ]
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    changes = bpe(
        400,
        **{
            "data.format": "chat",
            "data.include": ["*.jsonl"],
            "data.dedup.exact": False,
            "train.steps": _STEPS,
            "train.lr": 2e-2,
            "data.evaluation.prompts": ["Marta 4321, ¿qué tal?"],
            "data.evaluation.temperature": 0.0,
            "data.evaluation.max_new_tokens": 12,
            "model.seq_len": 64,
            "train.tokens_per_step": 256,
        },
    )
    return prepare(tmp_path_factory.mktemp("responde"), {"c.jsonl": lines}, changes)


def test_aprende_a_contestar_y_solo_a_contestar(prepared: Prepared) -> None:
    config, shards = prepared.config, prepared.shards
    backend = open_device(config.hardware)
    training = build_training(config, backend)
    sequences = config.train.tokens_per_step // config.model.seq_len
    stream = open_stream(shards, "train", config.model.seq_len, sequences, 1, 400)
    losses = [train_step(training, stream.batch(step), step).loss for step in range(_STEPS)]
    assert training.counters.empty == training.counters.skipped == 0
    assert losses[0] == pytest.approx(math.log(400), rel=0.1)  # sin aprender nada
    assert losses[-1] < 0.1  # la respuesta es siempre la misma; la pregunta no entra en la cuenta

    tokenizer = TextTokenizer.load(prepared.tokenizer)
    model = training.model.eval()
    (sample,) = generate_samples(model, tokenizer, config.data.evaluation, backend, chat=True)
    assert (sample.continuation, sample.finished) == (_ANSWER, True)

    batches = list(validation_batches(shards, "val", config.model.seq_len, 2, 0, 400))
    figures = evaluate_loss(model, iter(batches), backend, bytes_per_id(tokenizer, 400))
    total, learned = 0.0, 0
    with torch.no_grad():
        for batch in batches:
            logits, _ = model(batch.ids)
            kept = batch.targets.flatten() != -100
            picked = logits.flatten(0, 1)[kept].float()
            total += cross_entropy(picked, batch.targets.flatten()[kept], reduction="sum").item()
            learned += int(kept.sum())
    assert learned == read_index(shards).split("val").trained_tokens
    assert figures.loss == pytest.approx(total / learned, rel=1e-4)


def test_entre_los_objetivos_no_hay_nada_del_usuario(prepared: Prepared) -> None:
    batch = open_stream(prepared.shards, "train", 64, 8, 1, 400).batch(0)
    tokenizer = TextTokenizer.load(prepared.tokenizer)
    learned = batch.targets[batch.targets != -100].tolist()
    text = tokenizer.decode(learned)
    whole = _ANSWER + "<|im_end|>"
    assert whole in text
    assert not any(name in text for name in _NAMES)
    assert "user" not in text
    assert set(learned) == set(tokenizer.encode(_ANSWER)) | {tokenizer.turn_end_id}
