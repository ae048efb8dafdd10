"""Un modelo que aprende a conversar, exportado: todos leen y contestan lo mismo."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from enlace.data.streams import open_stream
from enlace.data.tokenizer import TextTokenizer
from enlace.export.build import export_model
from enlace.export.llama import LlamaServer
from enlace.inference.conversation import Conversation
from enlace.inference.engine import Engine, Outcome, Request, open_engine
from enlace.model.sampling import Sampling
from enlace.train.export import export_run
from tests.data.builders import bpe, prepare
from tests.export.support_export import SETTINGS
from tests.train.runs import ORIGIN, run_training

_SEQ_LEN, _VOCABULARY, _STEPS = 256, 400, 40
_SYSTEM = "Responde en español."
_ANSWER = "¡Muy bien, gracias! 😀"
_QUESTIONS = (
    "Íñigo 1936, ¿qué tal?",
    "LUZ 7, ¿QUÉ TAL?",
    "Dos líneas.\n\n¿Qué tal?",
    "Esto no cierra nada: <|im_end|>, ¿qué tal?",
)
_LLAMA_GREEDY = {"temperature": 0.0, "repeat_penalty": 1.0, "max_tokens": 24}

pytestmark = pytest.mark.slow


class Chat(NamedTuple):
    exported: Path
    engine: Engine


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Chat:
    """De un jsonl de conversaciones a la carpeta exportada, ya comprobada por la exportación."""
    folder = tmp_path_factory.mktemp("conversa")
    names = ("Íñigo", "Ana", "LUZ", "Tomás", "Nuria")
    records = [
        {
            "messages": [
                {"role": "system", "content": _SYSTEM},
                {"role": "user", "content": f"{names[n % 5]} {n * 7919 % 1000}, ¿qué tal?"},
                {"role": "assistant", "content": _ANSWER},
                {"role": "user", "content": f"¿Seguro que sí, {names[n % 3]}?"},
                {"role": "assistant", "content": _ANSWER},
            ]
        }
        for n in range(160)
    ]
    changes: dict[str, Any] = {
        "data.format": "chat",
        "data.include": ["*.jsonl"],
        "data.dedup.exact": False,
        "data.val_fraction": 0.2,
        "model.seq_len": _SEQ_LEN,
        "model.n_head": 4,
        "model.n_kv_head": 2,
        "model.d_model": 64,
        "model.ffn_multiple_of": 32,
        "train.steps": _STEPS,
        "train.decay": 10,
        "train.warmup": 2,
        "train.save_every": _STEPS,
        "train.lr": 2e-2,
        "train.tokens_per_step": 4 * _SEQ_LEN,
    }
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    prepared = prepare(folder, {"c.jsonl": lines}, bpe(_VOCABULARY, **changes))
    stream: Any = open_stream(prepared.shards, "train", _SEQ_LEN, 4, 1, _VOCABULARY)
    origin = ORIGIN | {"tokenizer": TextTokenizer.load(prepared.tokenizer).fingerprint}
    run = folder / f"prueba-{'0' * 16}"
    run_training(run, prepared.config, stream=stream, origin=origin)
    export_run(run, folder / "model", folder / "state", prepared.tokenizer)
    settings = SETTINGS.model_copy(update={"gguf": ("f32",)})
    report = export_model(folder / "model", folder / "exported", settings)
    assert report["chats"]
    return Chat(folder / "exported", open_engine(folder / "exported", folder))


@pytest.fixture(scope="module")
def server(chat: Chat) -> Iterator[LlamaServer]:
    """llama.cpp con el GGUF en F32."""
    with LlamaServer(next(chat.exported.glob("*.gguf")), _SEQ_LEN, "exact") as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(chat: Chat) -> Any:
    """El de la carpeta, con transformers."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(chat.exported, local_files_only=True)


def _dialogues(chat: Chat) -> Iterator[tuple[list[dict[str, str]], list[int]]]:
    """Cada conversación que espera respuesta, y los ids que el modelo lee en ENLACE."""
    own = chat.engine.tokenizer
    assert isinstance(own, TextTokenizer)
    for system in ("", _SYSTEM):
        talk = Conversation(own, _SEQ_LEN, system)
        messages = [{"role": "system", "content": system}] if system else []
        for question in _QUESTIONS:
            ids = talk.ask(question, 24).ids
            messages = [*messages, {"role": "user", "content": question}]
            yield messages, ids
            talk.answer(own.encode(_ANSWER), _ANSWER)
            messages = [*messages, {"role": "assistant", "content": _ANSWER}]


def _has_marker(messages: list[dict[str, str]]) -> bool:
    return any("<|im_end|>" in message["content"] for message in messages)


def test_la_plantilla_da_los_mismos_ids_en_todos(
    chat: Chat, tokenizer: Any, server: LlamaServer
) -> None:
    compared = 0
    for messages, ids in _dialogues(chat):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert server.apply_template(messages) == text
        if _has_marker(messages):
            continue  # allí el texto que imita un marcador lo es; en ENLACE, no
        template = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, add_generation_prompt=True
        )
        assert list(template["input_ids"]) == ids
        assert server.tokenize(text, special=True) == ids
        compared += 1
    assert compared == 6


def test_contestan_lo_mismo_y_callan_a_la_vez(
    chat: Chat, tokenizer: Any, server: LlamaServer
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(chat.exported, dtype=torch.float32)
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "max_new_tokens": 24}
    own = chat.engine.tokenizer
    whole = own.encode(_ANSWER)
    for number, (messages, ids) in enumerate(_dialogues(chat)):
        outcome, request = Outcome(), Request(24, Sampling(0.0))
        text = "".join(chat.engine.stream(ids, request, chat.engine.generator(0), outcome))
        ids_BT = torch.tensor([ids])
        output = model.generate(ids_BT, attention_mask=torch.ones_like(ids_BT), **greedy)
        theirs = output[0, len(ids) :].tolist()
        assert theirs[-1] == tokenizer.eos_token_id
        assert theirs[:-1] == outcome.ids
        assert server.greedy(ids, 24)[: len(outcome.ids)] == outcome.ids
        if not _has_marker(messages):
            answer = server.post("/v1/chat/completions", {"messages": messages, **_LLAMA_GREEDY})
            assert answer["choices"][0]["message"]["content"] == text
        assert outcome.ending == "end"
        if number == 0:
            assert (text, outcome.ids) == (_ANSWER, whole)
