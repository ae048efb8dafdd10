"""Las respuestas con la forma de la API de OpenAI, enteras o por trozos."""

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from enlace.serve.engine import Ending

Kind = Literal["chat", "text"]
_OBJECTS: dict[Kind, tuple[str, str, str]] = {
    "chat": ("chatcmpl-", "chat.completion", "chat.completion.chunk"),
    "text": ("cmpl-", "text_completion", "text_completion"),
}
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Answer:
    """Lo que no cambia de una respuesta.

    Attributes:
        kind: conversación o texto.
        model: el nombre del modelo.
        prompt_tokens: tokens que ha leído.
        forgotten: turnos o tokens que no cabían y se han olvidado.
    """

    kind: Kind
    model: str
    prompt_tokens: int
    forgotten: int
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, ending: Ending, tokens: int) -> dict[str, Any]:
        """La respuesta entera."""
        message = {"role": "assistant", "content": text}
        said = {"message": message} if self.kind == "chat" else {"text": text}
        return self._object(1) | {
            **self._forgotten(),
            "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": _reason(ending)}],
            "usage": self._usage(tokens),
        }

    def opening(self) -> bytes:
        """El primer trozo: quién habla y, si se ha olvidado algo, cuánto."""
        said: dict[str, Any] = {"text": ""}
        if self.kind == "chat":
            said = {"delta": {"role": "assistant", "content": ""}}
        return event(self._chunk(said) | self._forgotten())

    def piece(self, text: str) -> bytes:
        """Un trozo de texto."""
        said = {"delta": {"content": text}} if self.kind == "chat" else {"text": text}
        return event(self._chunk(said))

    def closing(self, ending: Ending) -> bytes:
        """El trozo que dice por qué acaba."""
        said: dict[str, Any] = {"delta": {}} if self.kind == "chat" else {"text": ""}
        return event(self._chunk(said, _reason(ending)))

    def usage(self, tokens: int) -> bytes:
        """El trozo con la cuenta, para quien la pide."""
        return event(self._object(2) | {"choices": [], "usage": self._usage(tokens)})

    def _chunk(self, said: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return self._object(2) | {"choices": [choice]}

    def _forgotten(self) -> dict[str, int]:
        return {"forgotten": self.forgotten} if self.forgotten else {}

    def _object(self, which: int) -> dict[str, Any]:
        names = _OBJECTS[self.kind]
        return {
            "id": names[0] + self.id,
            "object": names[which],
            "created": self.created,
            "model": self.model,
        }

    def _usage(self, tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self.prompt_tokens + tokens,
        }


def event(value: dict[str, Any]) -> bytes:
    """Un suceso SSE."""
    return b"data: " + json_bytes(value) + b"\n\n"


def json_bytes(value: dict[str, Any]) -> bytes:
    """Un objeto en JSON, con sus tildes."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8")


def error_body(message: str, kind: str, code: str | None, param: str | None) -> dict[str, Any]:
    """Un error con la forma de los de OpenAI."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _reason(ending: Ending) -> str:
    return "length" if ending == "limit" else "stop"
