"""De un registro JSON a turnos: las formas en que la gente guarda conversaciones.

Se entienden tres: `messages` o `turns` con {role, content}, y `conversations` con {from, value}
(ShareGPT, donde `human` es quien pregunta y `gpt` quien responde). Lo que no se puede dar a un
modelo sin inventar nada —herramientas, imágenes, papeles desconocidos— se rechaza con su motivo.
"""

from typing import Any, cast, get_args

from enlace.data.documents import Role, Turn

CONVERSATION_FIELDS = ("messages", "turns", "conversations")
_ROLES: dict[str, Role] = {role: role for role in get_args(Role)} | {
    "human": "user",
    "gpt": "assistant",
}
_TOOL_ROLES = ("tool", "function", "function_call", "observation")
_TOOL_FIELDS = ("tool_calls", "function_call", "tool_call_id")


def read_turns(record: dict[str, Any]) -> tuple[Turn, ...] | str:
    """Los turnos de un registro, o por qué no es una conversación de la que aprender.

    Una clave `system` del registro (texto no vacío) es el primer turno, si no hay otro de sistema.
    """
    field = next((name for name in CONVERSATION_FIELDS if name in record), None)
    if field is None:
        return "falta el campo «messages» (o «turns», o «conversations»)"
    messages = record[field]
    if not isinstance(messages, list) or not messages:
        return f"el campo «{field}» no es una lista de turnos"
    turns: list[Turn] = []
    for position, message in enumerate(messages, start=1):
        turn = _turn(message, position)
        if isinstance(turn, str):
            return turn
        turns.append(turn)
    system = record.get("system")
    if isinstance(system, str) and system.strip() and turns[0].role != "system":
        turns.insert(0, Turn("system", system))
    return _problem(turns) or tuple(turns)


def _turn(message: Any, position: int) -> Turn | str:
    if not isinstance(message, dict):
        return f"el turno {position} no es un objeto JSON"
    role = message.get("role", message.get("from"))
    if role in _TOOL_ROLES or any(message.get(name) for name in _TOOL_FIELDS):
        return (
            f"el turno {position} usa herramientas (role={role!r}), que la plantilla no representa"
        )
    content = _content(message.get("content", message.get("value")))
    if not isinstance(role, str) or role not in _ROLES or content is None:
        return (
            f"el turno {position} no es {{role: {'|'.join(get_args(Role))}, content: texto}} "
            f"(role={role!r})"
        )
    return Turn(_ROLES[role], content)


def _content(value: Any) -> str | None:
    """El texto de un turno; vale también una lista de partes si todas son de texto."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    parts = [
        part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        for part in value
    ]
    if not all(isinstance(part, str) for part in parts):
        return None
    return "".join(cast(list[str], parts))


def _problem(turns: list[Turn]) -> str | None:
    for position, turn in enumerate(turns[1:], start=2):
        if turn.role == "system":
            return f"el turno {position} es de sistema y no va el primero"
    if not any(turn.role == "assistant" for turn in turns):
        return "la conversación no tiene ningún turno del asistente que aprender"
    return None
