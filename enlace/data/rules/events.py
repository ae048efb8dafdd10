"""Lo que una regla dice de un documento, y cómo se cuenta."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from enlace.data.documents import Document, Turn

Kind = Literal["changed", "cut", "dropped"]
MAX_EXAMPLE_CHARS = 200
_CONTEXT = 40


class Event(NamedTuple):
    """Una regla que actuó sobre un documento.

    `bytes` son los bytes UTF-8 que quitó (negativos si el texto creció); en un documento rechazado,
    los que tenía al llegar a la regla. `example` es «fuente: qué», de 200 caracteres como mucho.
    """

    rule: str
    kind: Kind
    bytes: int
    example: str


class LanguageCount(NamedTuple):
    """Párrafos de una lengua en un documento: cuántos, sus bytes UTF-8 y si se quedaron."""

    language: str
    paragraphs: int
    bytes: int
    kept: bool


class Cleaned(NamedTuple):
    """El documento limpio, o None si una regla lo dejó fuera, y todo lo que pasó por el camino."""

    document: Document | None
    events: tuple[Event, ...]
    languages: tuple[LanguageCount, ...] = ()


class Verdict(NamedTuple):
    """Lo que una regla decide: el documento, quizá cambiado, o el motivo del rechazo."""

    document: Document
    rejected: str | None = None
    languages: tuple[LanguageCount, ...] = ()


class Rule(NamedTuple):
    """Una fila de la tabla: nombre en el informe, lo que puede hacer y cómo lo hace."""

    name: str
    kinds: tuple[Kind, ...]
    apply: Callable[[Document], Verdict]


def text_rule(name: str, kind: Kind, change: Callable[[str], str]) -> Rule:
    """La regla que aplica `change` a un texto o, en una conversación, a cada turno."""
    return Rule(name, (kind,), lambda document: Verdict(map_text(document, change)))


def filter_rule(name: str, reason: Callable[[Document], str | None]) -> Rule:
    """La regla que deja fuera los documentos para los que `reason` da un motivo."""
    return Rule(name, ("dropped",), lambda document: Verdict(document, reason(document)))


def map_text(document: Document, change: Callable[[str], str]) -> Document:
    """El documento con `change` aplicado a su texto o a cada turno."""
    if not document.turns:
        text = change(document.text)
        return document if text == document.text else document._replace(text=text)
    turns = tuple(Turn(turn.role, change(turn.content)) for turn in document.turns)
    if turns == document.turns:
        return document
    return document._replace(text="\n".join(turn.content for turn in turns), turns=turns)


def event(rule: Rule, before: Document, verdict: Verdict) -> Event | None:
    """El suceso que corresponde a un veredicto, o None si la regla no hizo nada."""
    if verdict.rejected is not None:
        return Event(rule.name, "dropped", size(before.text), _example(before, verdict.rejected))
    if verdict.document is before:
        return None
    removed = size(before.text) - size(verdict.document.text)
    what = _first_difference(before.text, verdict.document.text)
    return Event(rule.name, rule.kinds[0], removed, _example(before, what))


def size(text: str) -> int:
    """Bytes UTF-8 de un texto."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _example(document: Document, what: str) -> str:
    return f"{document.source}: {what}"[:MAX_EXAMPLE_CHARS]


def _first_difference(before: str, after: str) -> str:
    """El texto de antes alrededor del primer carácter que cambió, escapado y en una línea."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return repr(before[max(0, low - _CONTEXT) : low + 2 * _CONTEXT])[1:-1]
