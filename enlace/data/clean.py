"""Limpieza: cambios que arreglan el texto y filtros que dejan documentos fuera, todo contado.

Un *cambio* es texto → texto; un *filtro* dice por qué no quiere un documento. Los dos se declaran
en una lista con su nombre, que es el que sale en el informe. El texto limpio es NFC, con LF, sin
NUL ni otros controles, y limpiar dos veces es limpiar una.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from enlace.data.documents import Document, Rejection, conversation

MAX_EXAMPLES = 3
_BOM = "\ufeff"
# Todo lo que Unicode trata como fin de línea: quitarlo sin más pegaría dos palabras.
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Guion blando, espacios de anchura cero, marcas de dirección y BOM interiores.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")


class Change(NamedTuple):
    """Un arreglo: su nombre en el informe y la función texto → texto."""

    name: str
    apply: Callable[[str], str]


class Filter(NamedTuple):
    """Un filtro: su nombre y la función que devuelve el motivo del rechazo, o None si acepta."""

    name: str
    reason: Callable[[Document], str | None]


def _nfc(text: str) -> str:
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


CHANGES = (
    Change("bom", lambda text: text.removeprefix(_BOM)),
    Change("line_ends", lambda text: _LINE_ENDS.sub("\n", text)),
    Change("control", lambda text: _CONTROL.sub("", text)),
    Change("invisible", lambda text: _INVISIBLE.sub("", text)),
    # Tras quitar lo invisible: una letra y su tilde pueden quedar por fin juntas.
    Change("nfc", _nfc),
    Change("trim", str.strip),
)


class Tally:
    """Cuentas de una regla: documentos, bytes UTF-8 que quitó y hasta tres ejemplos."""

    def __init__(self) -> None:
        self.documents = 0
        self.bytes = 0
        self.examples: list[str] = []

    def add(self, size: int, example: str) -> None:
        """Suma un documento que pierde `size` bytes."""
        self.documents += 1
        self.bytes += size
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)

    def as_dict(self) -> dict[str, Any]:
        """La forma del informe."""
        return {"documents": self.documents, "bytes": self.bytes, "examples": self.examples}


class Cleaner:
    """Aplica los cambios y después los filtros, y lleva la cuenta de todos.

    La única memoria que crece con el corpus es la de los duplicados: 16 bytes (y lo que Python les
    añade, unos 90 en total) por documento distinto.
    """

    def __init__(self, min_chars: int) -> None:
        self.changes = CHANGES
        self.filters = (
            Filter("empty", lambda document: None if document.text else "sin texto"),
            Filter("empty_turn", _empty_turn),
            Filter("too_short", lambda document: _too_short(document, min_chars)),
            Filter("duplicate", _Duplicates()),
        )
        names = [rule.name for rule in (*self.changes, *self.filters)]
        names += ["bad_bytes", "bad_record", "unknown_format"]
        self.tallies = {name: Tally() for name in names}

    def clean(self, document: Document) -> Document | None:
        """El documento limpio, o None si un filtro lo deja fuera (ya contado)."""
        cleaned = self._change(document)
        for rule in self.filters:
            reason = rule.reason(cleaned)
            if reason is not None:
                self.reject(Rejection(rule.name, cleaned.source, reason, _size(cleaned.text)))
                return None
        return cleaned

    def reject(self, rejection: Rejection) -> None:
        """Cuenta un rechazo, sea de un lector o de un filtro."""
        example = f"{rejection.source}: {rejection.detail}"
        self.tallies[rejection.rule].add(rejection.size, example)

    def report(self) -> dict[str, Any]:
        """Las cuentas de cada cambio y de cada regla que deja fuera documentos."""
        changed = {rule.name for rule in self.changes}
        return {
            "changes": {k: v.as_dict() for k, v in self.tallies.items() if k in changed},
            "dropped": {k: v.as_dict() for k, v in self.tallies.items() if k not in changed},
        }

    def _change(self, document: Document) -> Document:
        touched: dict[str, int] = {}
        if document.turns:
            turns = tuple(
                turn._replace(content=self._change_text(turn.content, touched))
                for turn in document.turns
            )
            cleaned = conversation(turns, document.source)
        else:
            cleaned = document._replace(text=self._change_text(document.text, touched))
        for name, removed in touched.items():
            self.tallies[name].add(removed, document.source)
        return cleaned

    def _change_text(self, text: str, touched: dict[str, int]) -> str:
        for rule in self.changes:
            changed = rule.apply(text)
            if changed != text:
                removed = _size(text) - _size(changed)
                touched[rule.name] = touched.get(rule.name, 0) + removed
            text = changed
        return text


def normalize(text: str) -> str:
    """El texto con todos los cambios aplicados; también sirve para los prompts."""
    for rule in CHANGES:
        text = rule.apply(text)
    return text


def document_id(document: Document) -> str:
    """128 bits hexadecimales del SHA-256 del contenido limpio: no depende de su procedencia."""
    content = document.text
    if document.turns:
        content = json.dumps([list(turn) for turn in document.turns], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:32]


def split_of(identifier: str, val_fraction: float) -> str:
    """`val` o `train` según los primeros 64 bits del id.

    Cada documento decide por sí solo, así que el reparto no cambia cuando el corpus crece, y al
    subir `val_fraction` ninguno vuelve de validación a entrenamiento.
    """
    return "val" if int(identifier[:16], 16) < val_fraction * 2**64 else "train"


class _Duplicates:
    """Filtro con memoria: rechaza un contenido ya visto. El primero, en orden de ruta, se queda."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def __call__(self, document: Document) -> str | None:
        digest = bytes.fromhex(document_id(document))
        if digest in self.seen:
            return f"contenido repetido (id {digest.hex()})"
        self.seen.add(digest)
        return None


def _empty_turn(document: Document) -> str | None:
    for position, turn in enumerate(document.turns, start=1):
        if not turn.content:
            return f"el turno {position} ({turn.role}) está vacío"
    return None


def _too_short(document: Document, min_chars: int) -> str | None:
    length = len(document.text)
    return None if length >= min_chars else f"{length} caracteres, menos que {min_chars}"


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
