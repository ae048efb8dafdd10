"""Conversaciones en ChatML, con la máscara de lo que el modelo aprende.

`<|im_start|>rol⏎contenido<|im_end|>⏎` por turno. Solo cuentan para la pérdida el contenido del
asistente y su `<|im_end|>`. Los marcadores son ids que pone el programa: si el texto contiene
"<|im_end|>", se codifica como texto y no cierra nada.
"""

from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from enlace.config.schema import DataConfig
from enlace.data.documents import Role, Turn
from enlace.data.tokenizer import Ids, TextTokenizer, Tokenizer


class TurnMarkers(NamedTuple):
    """Los ids que rodean cada turno: los dos especiales, "rol⏎" de cada rol y el "⏎" final."""

    start: int
    end: int
    roles: dict[str, Ids]
    newline: Ids


def turn_markers(tokenizer: TextTokenizer) -> TurnMarkers:
    """Los marcadores de un tokenizador."""
    roles = get_args(Role)
    encoded = tokenizer.encode_arrays([*(f"{role}\n" for role in roles), "\n"])
    return TurnMarkers(
        tokenizer.turn_start_id,
        tokenizer.turn_end_id,
        dict(zip(roles, encoded, strict=False)),
        encoded[-1],
    )


def converses(data: DataConfig) -> bool:
    """Si un modelo aprendió de conversaciones; si no, solo completa textos."""
    return data.format == "chat"


def end_ids(tokenizer: Tokenizer, chats: bool) -> list[int]:
    """Los ids que terminan lo que escribe un modelo, el principal primero."""
    if chats and isinstance(tokenizer, TextTokenizer):
        return [tokenizer.turn_end_id, tokenizer.eos_id]
    return [tokenizer.eos_id]


def render_question(content: list[int], markers: TurnMarkers) -> list[int]:
    """Un turno de usuario y la apertura de la respuesta: lo que se da al modelo para que conteste.

    Es el principio exacto de lo que `render_turns` hace con esa pregunta y cualquier respuesta.
    """
    question = np.array(content, dtype=np.uint32)
    ids, _ = render_turns((Turn("user", ""),), [question], markers)
    return [*map(int, ids), markers.start, *map(int, markers.roles["assistant"])]


def render_turns(
    turns: tuple[Turn, ...], contents: list[Ids], markers: TurnMarkers
) -> tuple[Ids, npt.NDArray[np.uint8]]:
    """Los ids de una conversación y su máscara (1 = se aprende), de igual longitud.

    `contents` son los ids del contenido de cada turno. Codificar "rol⏎" y el contenido por
    separado da lo mismo que juntos, porque el texto limpio no empieza por espacio y el
    pre-tokenizador corta tras el salto de línea.
    """
    pieces: list[Ids] = []
    masks: list[npt.NDArray[np.uint8]] = []
    for turn, content in zip(turns, contents, strict=True):
        learned = turn.role == "assistant"
        opening = np.concatenate([[markers.start], markers.roles[turn.role]]).astype(np.uint32)
        answer = np.append(content, np.uint32(markers.end)).astype(np.uint32)
        pieces += [opening, answer, markers.newline]
        masks += [
            np.zeros(len(opening), dtype=np.uint8),
            np.full(len(answer), learned, dtype=np.uint8),
            np.zeros(len(markers.newline), dtype=np.uint8),
        ]
    return np.concatenate(pieces), np.concatenate(masks)


def learned_bytes(turns: tuple[Turn, ...]) -> int:
    """Bytes UTF-8 de lo que dice el asistente."""
    return sum(len(turn.content.encode("utf-8")) for turn in turns if turn.role == "assistant")
