"""La API con un motor de mentira: lo que se contesta, lo que se rechaza y lo que no existe."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from enlace.serve.requests import ChatRequest, CompletionRequest, problem_of, sampling_settings
from tests.serve.support_serve import CONTEXT, TALK, TEXT, FakeEngine, events, running, served

CHAT = "/v1/chat/completions"
COMPLETE = "/v1/completions"


def _ask(path: str, body: dict[str, Any], chats: bool, engine: FakeEngine) -> Any:
    async def run() -> Any:
        async with running(engine, chats=chats) as server:
            return await server.post(path, body)

    return asyncio.run(run())


def _stream(path: str, body: dict[str, Any], chats: bool, engine: FakeEngine) -> Any:
    async def run() -> Any:
        async with running(engine, chats=chats) as server:
            asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
            async with server.client.post(server.url + path, json=asked) as response:
                assert response.headers["Content-Type"].startswith("text/event-stream")
                return events(await response.text())

    return asyncio.run(run())


def test_una_conversacion_recibe_su_respuesta() -> None:
    status, answer = _ask(CHAT, TALK, True, FakeEngine())
    choice = answer["choices"][0]
    assert (status, answer["object"]) == (200, "chat.completion")
    assert choice["message"] == {"role": "assistant", "content": "¡Hola, niña!"}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3


def test_un_texto_recibe_su_continuacion() -> None:
    status, answer = _ask(COMPLETE, TEXT, False, FakeEngine())
    assert (status, answer["choices"][0]["text"]) == (200, "¡Hola, niña!")
    length = len(served().tokenizer.encode(TEXT["prompt"]))
    assert answer["usage"]["prompt_tokens"] == length


def test_por_trozos_dice_lo_mismo_que_entera() -> None:
    for path, body, chats in ((CHAT, TALK, True), (COMPLETE, TEXT, False)):
        found = _stream(path, body, chats, FakeEngine())
        said = [each["choices"][0] for each in found if each["choices"]]
        text = "".join(each.get("text", each.get("delta", {}).get("content", "")) for each in said)
        assert text == "¡Hola, niña!"
        assert [each["finish_reason"] for each in said][-1] == "stop"
        assert found[-1]["usage"]["completion_tokens"] == 3


def test_un_modelo_preentrenado_dice_que_no_conversa() -> None:
    engine = FakeEngine()
    status, answer = _ask(CHAT, TALK, False, engine)
    assert status == 400
    assert "completa texto; todavía no conversa" in answer["error"]["message"]
    assert engine.asked == []


def test_el_modelo_cuenta_de_si_lo_que_la_pagina_necesita() -> None:
    async def run() -> Any:
        async with (
            running(FakeEngine()) as server,
            server.client.get(server.url + "/v1/models") as response,
        ):
            return (await response.json())["data"]

    (entry,) = asyncio.run(run())
    assert (entry["id"], entry["chats"], entry["context"]) == ("prueba", False, CONTEXT)
    assert entry["description"] == "completa texto; todavía no conversa"
    assert entry["defaults"]["repetition_penalty"] == served().sampling.repeat_penalty


def test_lo_de_llama_server_no_esta_y_lo_que_hay_no_admite_otros_metodos() -> None:
    paths = "slots props metrics lora-adapters completion infill tokenize health v1/embeddings"

    async def run() -> list[int]:
        async with running(FakeEngine()) as server:
            statuses = []
            for path in paths.split():
                for method in ("GET", "POST"):
                    async with server.client.request(method, f"{server.url}/{path}") as response:
                        statuses.append(response.status)
                        assert "no hay nada" in (await response.json())["error"]["message"]
            async with server.client.delete(server.url + "/v1/models") as response:
                assert response.status == 405
            return statuses

    assert set(asyncio.run(run())) == {404}


def test_lo_que_no_cabe_se_dice_y_solo_se_olvida_si_se_pide() -> None:
    long = [{"role": "user", "content": "palabra " * 60}, {"role": "assistant", "content": "sí"}]
    body = {"messages": [*long, *long, *TALK["messages"]]}
    status, answer = _ask(CHAT, body, True, FakeEngine())
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert str(CONTEXT) in answer["error"]["message"]
    status, answer = _ask(CHAT, body | {"truncation": "auto"}, True, FakeEngine())
    assert (status, answer["forgotten"]) == (200, 4)
    said = _stream(CHAT, body | {"truncation": "auto"}, True, FakeEngine())
    assert [each.get("forgotten") for each in said] == [4] + [None] * (len(said) - 1)
    assert _ask(COMPLETE, {"prompt": "palabra " * 400}, False, FakeEngine())[0] == 400
    assert _ask(COMPLETE, {"prompt": ""}, False, FakeEngine())[0] == 400


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tools": []}, "tools: no se admite"),
        ({"logit_bias": {}}, "logit_bias: no se admite"),
        ({"grammar": "x"}, "grammar: no se admite"),
        ({"n": 2}, "n: debe ser 1"),
        ({"temperature": -1}, "temperature: debe ser 0"),
        ({"temperature": "0"}, "temperature: debe ser un número"),
        ({"top_p": 1.5}, "top_p: debe ser 1 o menos"),
        ({"max_tokens": 0}, "max_tokens: debe ser 1 o más"),
        ({"max_tokens": 2.5}, "max_tokens: debe ser un entero"),
        ({"stop": ["x"] * 99}, "stop: pasa de"),
        ({"stop": ""}, "stop: está vacío"),
        ({"seed": -3}, "seed: debe ser 0"),
        ({"stream": "yes"}, "stream: debe ser true o false"),
        ({"messages": []}, "messages: está vacío"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "debe ser system, user o assistant"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "debe ser del usuario"),
        (
            {"messages": [*TALK["messages"], {"role": "system", "content": "x"}]},
            "solo pueden ir al principio",
        ),
    ],
)
def test_lo_que_no_se_admite_se_rechaza_por_su_nombre(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate_json(json.dumps(TALK | change))
    message, _ = problem_of(caught.value)
    assert said in message


@pytest.mark.parametrize("body", ["", "{", "[1]", '{"prompt": "\\ud800"}', "\xff", "[" * 9999])
def test_lo_que_no_es_json_se_rechaza_con_una_frase(body: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CompletionRequest.model_validate_json(body.encode("latin-1"))
    message, field = problem_of(caught.value)
    assert message.startswith("la petición ")
    assert field is None


def test_lo_que_no_se_pide_sale_de_la_exportacion_y_nada_pasa_de_contexto() -> None:
    ours = served().sampling
    settings = sampling_settings(served(), CompletionRequest(prompt="a"), 100)
    assert settings["temperature"] == ours.temperature
    assert (settings["top_k"], settings["top_p"]) == (ours.top_k, ours.top_p)
    assert (settings["min_p"], settings["repeat_penalty"]) == (ours.min_p, ours.repeat_penalty)
    assert settings["n_predict"] == served().new_tokens
    asked = CompletionRequest(prompt="a", max_tokens=10**9, temperature=0.0, stop="fin", seed=7)
    settings = sampling_settings(served(), asked, 100)
    assert (settings["n_predict"], settings["temperature"], settings["seed"]) == (100, 0.0, 7)
    assert settings["stop"] == ["fin"]


def test_el_motor_que_falla_es_un_error_claro_antes_y_a_mitad() -> None:
    engine = FakeEngine()
    engine.fails_after = 0
    status, answer = _ask(CHAT, TALK, True, engine)
    assert (status, answer["error"]["type"]) == (502, "server_error")
    engine.fails_after = 2
    assert _ask(CHAT, TALK, True, engine)[0] == 502
    assert "motor" in _stream(CHAT, TALK, True, engine)[-1]["error"]["message"]
    assert engine.open == 0


def test_otro_modelo_no_esta() -> None:
    status, answer = _ask(COMPLETE, TEXT | {"model": "gpt-4o"}, False, FakeEngine())
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert _ask(COMPLETE, TEXT | {"model": "prueba"}, False, FakeEngine())[0] == 200
