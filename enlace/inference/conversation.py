"""Lo que se ha dicho hasta ahora y qué parte de ello lee el modelo.

Regla del contexto: el mensaje nuevo se lee entero y queda sitio para la respuesta pedida; si no
cabe, se olvidan los turnos más viejos, de pregunta en pregunta, y nunca las instrucciones de
sistema. Quien solo completa texto conserva lo último que cabe.
"""

from dataclasses import dataclass

import numpy as np

from enlace.data.chat import render_turns, turn_markers
from enlace.data.documents import Turn
from enlace.data.rules.characters import normalize, normalize_characters
from enlace.data.tokenizer import Ids, TextTokenizer, Tokenizer
from enlace.errors import DataError


class TooLongError(DataError):
    """Un mensaje que no cabe en el contexto ni él solo."""


@dataclass(frozen=True)
class Prompt:
    """Lo que lee el modelo, y lo que ha habido que olvidar (turnos o, si completa, tokens)."""

    ids: list[int]
    forgotten: int


class Conversation:
    """Turnos en ChatML, para un modelo entrenado con conversaciones."""

    def __init__(self, tokenizer: TextTokenizer, seq_len: int, system: str = "") -> None:
        """`system` son las instrucciones de sistema; vacío, ninguna."""
        self._tokenizer = tokenizer
        self._markers = turn_markers(tokenizer)
        self._seq_len = seq_len
        self._system = system
        self._turns: list[tuple[Turn, Ids]] = []
        self.clear()

    def clear(self) -> None:
        """Empieza otra, con las mismas instrucciones."""
        self._turns = []
        self._head = [self._turn(Turn("system", normalize(self._system)))] if self._system else []

    def ask(self, text: str, reserve: int) -> Prompt:
        """Añade un mensaje y devuelve lo que se da al modelo, con `reserve` tokens para contestar.

        Raises:
            TooLongError: el mensaje no cabe; la conversación queda como estaba.
        """
        question = self._turn(Turn("user", normalize(text)))
        kept = list(self._turns)
        ids = self._rendered([*kept, question])
        while len(ids) + reserve > self._seq_len and kept:
            # Una pregunta y lo que se contestó se olvidan juntas.
            del kept[: 2 if len(kept) > 1 and kept[1][0].role == "assistant" else 1]
            ids = self._rendered([*kept, question])
        if len(ids) >= self._seq_len:
            raise TooLongError(too_long(len(ids), self._seq_len))
        forgotten = len(self._turns) - len(kept)
        self._turns = [*kept, question]
        return Prompt(ids, forgotten)

    def answer(self, ids: list[int], shown: str) -> None:
        """Apunta lo que contestó el modelo; ver `said`."""
        self._turns.append((Turn("assistant", shown), _array(said(self._tokenizer, ids, shown))))

    def _turn(self, turn: Turn) -> tuple[Turn, Ids]:
        return turn, _array(self._tokenizer.encode(turn.content))

    def _rendered(self, turns: list[tuple[Turn, Ids]]) -> list[int]:
        shown = [*self._head, *turns]
        ids, _ = render_turns(
            tuple(turn for turn, _ in shown), [content for _, content in shown], self._markers
        )
        opening = [self._markers.start, *map(int, self._markers.roles["assistant"])]
        return [*map(int, ids), *opening]


class Text:
    """Un texto que se continúa, para un modelo que solo se ha preentrenado."""

    def __init__(self, tokenizer: Tokenizer, seq_len: int) -> None:
        self._tokenizer = tokenizer
        self._seq_len = seq_len
        self._ids: list[int] = []

    def clear(self) -> None:
        """Empieza otro."""
        self._ids = []

    def ask(self, text: str, reserve: int) -> Prompt:
        """Empieza otro texto por `text` o, si está vacío, sigue con el de antes.

        Raises:
            TooLongError: el principio no cabe; el texto queda como estaba.
        """
        ids = self._tokenizer.encode(normalize_characters(text)) if text else self._ids
        if text and len(ids) >= self._seq_len:
            raise TooLongError(too_long(len(ids), self._seq_len))
        kept = ids
        if not text and len(ids) + reserve > self._seq_len:
            kept = ids[-max(1, self._seq_len - reserve) :]
        self._ids = list(kept)
        return Prompt(list(kept), len(ids) - len(kept))

    def answer(self, ids: list[int], shown: str) -> None:
        """Apunta lo que ha escrito el modelo; ver `said`."""
        self._ids = [*self._ids, *said(self._tokenizer, ids, shown)]


def said(tokenizer: Tokenizer, ids: list[int], shown: str) -> list[int]:
    """Los ids de lo que se enseñó: los mismos que salieron, y así no hay que releerlos.

    Si una frase de parada, un corte o un carácter a medias dejaron fuera el final, los de ese
    texto: lo que no se ha visto no cuenta como dicho.
    """
    if tokenizer.decode(ids, skip_special=True) == shown:
        return ids
    return tokenizer.encode(shown)


def too_long(length: int, seq_len: int) -> str:
    """Por qué no cabe un texto y qué hacer."""
    return (
        f"el texto ocupa {length} tokens y este modelo admite entre 1 y {seq_len - 1}; "
        "alárgalo o acórtalo"
    )


def _array(ids: list[int]) -> Ids:
    return np.array(ids, dtype=np.uint32)
