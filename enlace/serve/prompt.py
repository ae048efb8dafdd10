"""De lo que se pide a los ids que lee el modelo, con la misma regla de contexto que `enlace chat`.

Aquí se parte el texto, y no en llama-server, por tres motivos: así un mensaje que contiene
"<|im_end|>" es texto y no cierra su turno; las tildes se componen (NFC), cosa que ningún motor
hace; y se sabe cuántos tokens hay antes de pedir nada.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enlace.data.chat import render_turns, turn_markers
from enlace.data.documents import Turn
from enlace.data.rules.characters import normalize, normalize_characters
from enlace.data.tokenizer import Ids
from enlace.figures import integer
from enlace.serve.served import Served


class TooLongError(ValueError):
    """Lo que se pide no cabe en el contexto."""


class EmptyTextError(ValueError):
    """No hay texto que continuar."""


@dataclass(frozen=True)
class Prompt:
    """Lo que lee el modelo, y lo que ha habido que olvidar (turnos o, si completa, tokens)."""

    ids: list[int]
    forgotten: int = 0


def reserved(served: Served, new_tokens: int) -> int:
    """Sitio que se guarda para la respuesta: lo pedido, sin pasar de la mitad del contexto."""
    return min(new_tokens, served.context // 2)


def chat_prompt(served: Served, turns: Sequence[Turn], reserve: int, forget: bool) -> Prompt:
    """Los ids de una conversación y la apertura de la respuesta.

    Args:
        served: el modelo.
        turns: si hay instrucciones de sistema, el primero; el último, del usuario.
        reserve: tokens que se guardan para contestar si se puede olvidar.
        forget: si se olvidan los turnos más viejos cuando no caben, de pregunta en pregunta; las
            instrucciones, nunca.

    Raises:
        TooLongError: no cabe.
    """
    markers = turn_markers(served.tokenizer)
    coded = [(turn, _encoded(served, turn)) for turn in turns]
    opening = [markers.start, *map(int, markers.roles["assistant"])]
    around = {role: 2 + len(ids) + len(markers.newline) for role, ids in markers.roles.items()}

    def size(part: Sequence[tuple[Turn, Ids]]) -> int:
        return sum(around[turn.role] + len(ids) for turn, ids in part)

    head = coded[:1] if turns[0].role == "system" else []
    kept, last = coded[len(head) : -1], coded[-1:]
    fixed = size(head) + size(last) + len(opening)
    before = len(kept)
    while forget and kept and fixed + size(kept) + reserve > served.context:
        # Una pregunta y lo que se contestó se olvidan juntas.
        del kept[: 2 if len(kept) > 1 and kept[1][0].role == "assistant" else 1]
    _check_room(served, fixed + size(kept))
    shown = [*head, *kept, *last]
    ids, _ = render_turns(
        tuple(turn for turn, _ in shown), [content for _, content in shown], markers
    )
    return Prompt([*map(int, ids), *opening], before - len(kept))


def text_prompt(served: Served, text: str, reserve: int, forget: bool) -> Prompt:
    """Los ids de un texto que se continúa; con `forget`, lo último que cabe.

    Raises:
        TooLongError: no cabe.
        EmptyTextError: no hay nada que continuar.
    """
    ids = served.tokenizer.encode(normalize_characters(text))
    if not ids:
        raise EmptyTextError("el texto está vacío; escribe un principio")
    kept = ids
    if forget and len(ids) + reserve > served.context:
        kept = ids[-max(1, served.context - reserve) :]
    _check_room(served, len(kept))
    return Prompt(kept, len(ids) - len(kept))


def _encoded(served: Served, turn: Turn) -> Ids:
    # Lo que contestó el modelo vuelve como lo dijo.
    content = turn.content if turn.role == "assistant" else normalize(turn.content)
    return np.array(served.tokenizer.encode(content), dtype=np.uint32)


def _check_room(served: Served, length: int) -> None:
    if length >= served.context:
        raise TooLongError(
            f"el texto ocupa {integer(length)} tokens y este modelo abarca "
            f"{integer(served.context)}, contando los que escribe; acórtalo"
        )
