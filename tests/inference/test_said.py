"""Lo que no se enseña (paradas, caracteres a medias) no queda en lo dicho."""

import io
from collections.abc import Iterator
from typing import Any

import pytest

from enlace.data.tokenizer import ByteTokenizer, Tokenizer
from enlace.inference.conversation import Conversation, Text, said
from enlace.inference.engine import Engine, Outcome, Request, open_backend
from enlace.model.sampling import Sampling
from enlace.workspace.chat import Terminal, chat
from tests.export.support_export import random_source, small_tokenizer

GREEDY = Sampling(0.0)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Un modelo al azar que conversa."""
    source = random_source()
    data = source.config.data.model_copy(update={"format": "chat"})
    config = source.config.model_copy(update={"data": data})
    return Engine(source.model, config, source.tokenizer, open_backend(config))


def _answer(engine: Engine, ids: list[int], *stops: str) -> Outcome:
    outcome, request = Outcome(), Request(24, GREEDY, stops)
    outcome_text = "".join(engine.stream(ids, request, engine.generator(1), outcome))
    assert outcome_text == outcome.text
    return outcome


def _prompt(*said_so_far: str) -> str:
    roles = ["user", "assistant"] * len(said_so_far)
    turns = [
        f"<|im_start|>{role}\n{text}<|im_end|>\n"
        for role, text in zip(roles, said_so_far, strict=False)
    ]
    return "".join(turns) + "<|im_start|>assistant\n"


def test_una_parada_repartida_en_tokens_ni_se_ensena_ni_queda_dicha(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = small_tokenizer()
    ids = Conversation(tokenizer, engine.seq_len).ask("Hola", 24).ids
    free = _answer(engine, ids)
    pieces = [tokenizer.decode([each]) for each in free.ids]
    # Empieza dentro de un token y acaba dentro de otro.
    at = next(
        index
        for index in range(4, len(pieces) - 1)
        if min(map(len, pieces[index : index + 2])) > 1
        and "\ufffd" not in "".join(pieces[: index + 2])
    )
    stop = pieces[at][1:] + pieces[at + 1][:1]
    shown = free.text[: free.text.index(stop)]
    assert shown

    prompts, stream = [], engine.stream

    def spied(ids: list[int], *rest: Any) -> Iterator[str]:
        prompts.append(ids)
        return stream(ids, *rest)

    monkeypatch.setattr(engine, "stream", spied)
    out = io.StringIO()
    terminal = Terminal(io.StringIO("Hola\n¿Y ahora?\n"), out, io.StringIO())
    chat(engine, Request(24, GREEDY, (stop,)), 1, terminal)
    assert out.getvalue().startswith(shown + "\n")
    assert stop not in out.getvalue()
    assert tokenizer.decode(prompts[1]) == _prompt("Hola", shown, "¿Y ahora?")


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), small_tokenizer()])
def test_un_caracter_a_medias_no_queda_dicho(tokenizer: Tokenizer) -> None:
    whole = tokenizer.encode("sí 🦜")
    assert said(tokenizer, whole, "sí 🦜") == whole
    assert said(tokenizer, whole[:-1], "sí ") == tokenizer.encode("sí ")
    text = Text(tokenizer, 200)
    text.ask("El loro dice ", 20)
    text.answer(whole[:-1], "sí ")
    assert tokenizer.decode(text.ask("", 20).ids) == "El loro dice sí "


def test_los_ids_que_se_ensenaron_enteros_no_se_vuelven_a_partir() -> None:
    tokenizer = small_tokenizer()
    ids = [each for letter in "camión" for each in tokenizer.encode(letter)]
    assert ids != tokenizer.encode("camión")
    assert said(tokenizer, ids, "camión") == ids
