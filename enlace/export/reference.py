"""Lo que debe decir un modelo exportado, calculado por ENLACE: ids, logits, texto y plantilla."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer as HFTokenizer
from torch import Tensor

from enlace.data.bpe import SPECIAL_TOKENS, TURN_END, TURN_START
from enlace.export.battery import HARD_TEXTS, PROMPTS
from enlace.export.source import Source

NEW_TOKENS = 16
"""Tokens que se continúa cada principio con el más probable."""
_OWN_TEXTS = 200
_OWN_TOKENS = 24


@dataclass(frozen=True)
class Case:
    """Un texto de la batería ante el modelo de ENLACE.

    Attributes:
        name: cómo se nombra en un error.
        ids: el fin de texto y los ids del texto, recortados al contexto.
        logits_TV: los logits en cada posición, en fp32.
    """

    name: str
    ids: list[int]
    logits_TV: Tensor  # noqa: N815


@dataclass(frozen=True)
class Continuation:
    """Lo que sigue a un principio con el token más probable, y los logits de cada elección."""

    name: str
    ids: list[int]
    new_ids: list[int]
    logits_NV: Tensor  # noqa: N815


class Reference:
    """Las respuestas correctas de un modelo. Los principios son los de aquí y los que se den."""

    def __init__(self, source: Source, prompts: Sequence[str] = ()) -> None:
        self.source = source
        self.stops = frozenset({source.tokenizer.eos_id, source.tokenizer.turn_end_id})
        """Los ids con los que para cualquier motor, converse o no el modelo."""
        self._tokenizer = HFTokenizer.from_str(source.tokenizer.to_json())
        self.texts = HARD_TEXTS | self._own_texts()
        self.cases = [self._case(name, text) for name, text in HARD_TEXTS.items()]
        self.continuations = [self._continuation(text) for text in (*PROMPTS, *prompts)]

    def token_ids(self, text: str, special: bool) -> list[int]:
        """Los ids de un texto; con `special`, el de un token especial es ese token."""
        if not special:
            return self.source.tokenizer.encode(text)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def prompt(self, messages: Sequence[dict[str, str]]) -> str:
        """El texto que el modelo debe leer para contestar a una conversación."""
        if not self.source.chats:
            ends = {"system": "\n"}
            return "".join(turn["content"] + ends.get(turn["role"], "") for turn in messages)
        turns = (f"{TURN_START}{m['role']}\n{m['content']}{TURN_END}\n" for m in messages)
        return "".join(turns) + f"{TURN_START}assistant\n"

    def _own_texts(self) -> dict[str, str]:
        """Textos al azar, siempre los mismos, hechos con los tokens del propio vocabulario.

        Ponen a prueba cada corte: dos tokens que un motor no separe donde debe se funden en otro.
        """
        tokenizer, draw = self.source.tokenizer, random.Random(0)  # noqa: S311 - no es un secreto
        ids = range(len(SPECIAL_TOKENS), tokenizer.vocab_size)
        texts = [tokenizer.decode(draw.choices(ids, k=_OWN_TOKENS)) for _ in range(_OWN_TEXTS)]
        # Lo que no forma un carácter se quita; en mayúsculas, otros cortes.
        clean = [text.replace("\ufffd", "") for text in texts]
        every = [each for text in clean for each in (text, text.upper())]
        return {f"al azar {number}": text for number, text in enumerate(every)}

    def _ids(self, text: str, room: int) -> list[int]:
        tokenizer = self.source.tokenizer
        return [tokenizer.eos_id, *tokenizer.encode(text)][: max(1, room)]

    @torch.inference_mode()
    def _case(self, name: str, text: str) -> Case:
        ids = self._ids(text, self.source.shape.seq_len - 1)
        logits_BTV, _ = self.source.model(torch.tensor([ids]))
        return Case(name, ids, logits_BTV[0])

    @torch.inference_mode()
    def _continuation(self, text: str) -> Continuation:
        """Con el modelo entero en cada token, sin caché: la referencia no comparte atajos."""
        room = max(1, self.source.shape.seq_len - NEW_TOKENS)
        ids = self._ids(text, room)
        found, chosen = list(ids), []
        for _ in range(min(NEW_TOKENS, self.source.shape.seq_len - len(ids))):
            logits_BTV, _ = self.source.model(torch.tensor([found]))
            chosen.append(logits_BTV[0, -1])
            found.append(int(chosen[-1].argmax()))
            if found[-1] in self.stops:
                break
        return Continuation(f"«{text}»", ids, found[len(ids) :], torch.stack(chosen))
