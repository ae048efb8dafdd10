"""Registros de conversación tal como los guarda la gente: qué se entiende y qué se rechaza."""

from typing import Any

import pytest

from enlace.data.conversations import read_turns
from enlace.data.documents import Turn

_EXPECTED = (Turn("user", "¿Qué tal?"), Turn("assistant", "Bien."))
_USER: dict[str, Any] = {"role": "user", "content": "¿Qué tal?"}
_ANSWER: dict[str, Any] = {"role": "assistant", "content": "Bien."}
_SHAREGPT = [{"from": "human", "value": "¿Qué tal?"}, {"from": "gpt", "value": "Bien."}]
_PARTS = [{"type": "text", "text": "¿Qué "}, {"type": "text", "text": "tal?"}]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [_USER, _ANSWER]},
        {"turns": [_USER, _ANSWER], "id": 7},
        {"conversations": [_USER, _ANSWER]},
        {"conversations": _SHAREGPT},
        {"messages": _SHAREGPT},
        {"messages": [{"role": "user", "content": _PARTS}, _ANSWER]},
        {"messages": [_USER, _ANSWER | {"tool_calls": None}], "tools": []},
        {"messages": [_USER, _ANSWER], "system": " "},
    ],
)
def test_las_formas_conocidas_dan_los_mismos_turnos(record: dict[str, Any]) -> None:
    assert read_turns(record) == _EXPECTED


def test_el_turno_de_sistema_va_el_primero() -> None:
    system = {"role": "system", "content": "Sé breve."}
    first = (Turn("system", "Sé breve."), *_EXPECTED)
    assert read_turns({"messages": [system, _USER, _ANSWER]}) == first
    assert read_turns({"conversations": _SHAREGPT, "system": "Sé breve."}) == first
    both = read_turns({"messages": [system, _USER, _ANSWER], "system": "Sé largo."})
    assert both == first  # manda el que está entre los turnos
    late = read_turns({"messages": [_USER, system, _ANSWER]})
    assert late == "el turno 2 es de sistema y no va el primero"


def test_varias_vueltas_conservan_su_orden() -> None:
    record = {"messages": [_USER, _ANSWER, _USER, _ANSWER]}
    assert read_turns(record) == (*_EXPECTED, *_EXPECTED)


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "tool", "content": "22 °C"},
        {"role": "function", "name": "f", "content": "22 °C"},
        {"from": "observation", "value": "22 °C"},
        {"from": "function_call", "value": "{}"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "content": None, "function_call": {"name": "f"}},
    ],
)
def test_las_herramientas_se_rechazan_por_su_nombre(turn: dict[str, Any]) -> None:
    problem = read_turns({"messages": [_USER, turn, _ANSWER]})
    assert isinstance(problem, str)
    assert problem.startswith("el turno 2 usa herramientas")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"text": "x"}, "falta el campo «messages»"),
        ({"messages": {}}, "no es una lista de turnos"),
        ({"conversations": []}, "el campo «conversations» no es una lista"),
        ({"messages": ["hola"]}, "el turno 1 no es un objeto JSON"),
        ({"messages": [_USER]}, "ningún turno del asistente"),
        ({"messages": [_ANSWER, {"role": "moderator", "content": "x"}]}, "role='moderator'"),
        ({"messages": [_ANSWER, {"role": ["user"], "content": "x"}]}, "el turno 2 no es {role"),
        ({"messages": [_ANSWER, {"role": "user"}]}, "el turno 2 no es {role"),
        ({"messages": [_ANSWER, {"role": "user", "content": []}]}, "el turno 2 no es {role"),
        (
            {"messages": [_ANSWER, {"role": "user", "content": [{"type": "image_url"}]}]},
            "el turno 2 no es {role",
        ),
    ],
)
def test_lo_que_no_es_una_conversacion_dice_por_que(record: dict[str, Any], said: str) -> None:
    problem = read_turns(record)
    assert isinstance(problem, str)
    assert said in problem
