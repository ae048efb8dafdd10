"""Las cuentas de la preparación: por regla, por fuente, por género y por lengua.

Cada proceso lleva las de su lote y el padre las suma en orden: los tres ejemplos de cada regla son
siempre los primeros del corpus, trabaje quien trabaje.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from enlace.data.documents import Document, Rejection
from enlace.data.rules.events import Event, LanguageCount, size

MAX_EXAMPLES = 3
MAX_LABELS = 1000
OTHERS = "(otros)"
"""Donde van los géneros a partir de `MAX_LABELS`: una columna de títulos no es de géneros."""


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

    def merge(self, other: "Tally") -> None:
        """Suma las cuentas de lo que viene después."""
        self.documents += other.documents
        self.bytes += other.bytes
        self.examples = (self.examples + other.examples)[:MAX_EXAMPLES]

    def as_dict(self) -> dict[str, Any]:
        """La forma del informe."""
        return {"documents": self.documents, "bytes": self.bytes, "examples": self.examples}


class Flow:
    """Lo que entra de un origen o de un género, y por qué sale lo que no se queda."""

    def __init__(self) -> None:
        self.documents = 0
        self.bytes = 0
        self.dropped: Counter[str] = Counter()

    def merge(self, other: "Flow") -> None:
        """Suma las cuentas de otro lote."""
        self.documents += other.documents
        self.bytes += other.bytes
        self.dropped.update(other.dropped)


class Tallies:
    """Todas las cuentas de una parte del corpus.

    `rules` lleva una `Tally` por (regla, qué hizo); `origins` y `genres`, un `Flow` por nombre;
    `languages`, [párrafos, bytes, párrafos que se quedan, bytes que se quedan].
    """

    def __init__(self) -> None:
        self.rules: dict[tuple[str, str], Tally] = {}
        self.origins: dict[str, Flow] = {}
        self.genres: dict[str, Flow] = {}
        self.languages: dict[str, list[int]] = {}

    def read(self, document: Document) -> None:
        """Cuenta un documento que entra."""
        for flow in self._flows(document.origin, document.genre):
            flow.documents += 1
            flow.bytes += size(document.text)

    def reject(self, rejection: Rejection) -> None:
        """Cuenta algo que ni siquiera llegó a documento."""
        example = f"{rejection.source}: {rejection.detail}"
        self._rule(rejection.rule, "dropped").add(rejection.size, example)

    def happened(self, event: Event, origin: str, genre: str) -> None:
        """Cuenta lo que una regla hizo con un documento de ese origen y ese género."""
        self._rule(event.rule, event.kind).add(event.bytes, event.example)
        if event.kind == "dropped":
            for flow in self._flows(origin, genre):
                flow.dropped[event.rule] += 1

    def heard(self, languages: Iterable[LanguageCount]) -> None:
        """Suma las lenguas de los párrafos de un documento."""
        for count in languages:
            row = self.languages.setdefault(count.language, [0, 0, 0, 0])
            row[0] += count.paragraphs
            row[1] += count.bytes
            if count.kept:
                row[2] += count.paragraphs
                row[3] += count.bytes

    def merge(self, other: "Tallies") -> None:
        """Suma las cuentas del lote siguiente."""
        for key, tally in other.rules.items():
            self.rules.setdefault(key, Tally()).merge(tally)
        for origin, flow in other.origins.items():
            _flow(self.origins, origin).merge(flow)
        for genre, flow in other.genres.items():
            _flow(self.genres, genre).merge(flow)
        for language, row in other.languages.items():
            mine = self.languages.setdefault(language, [0, 0, 0, 0])
            self.languages[language] = [a + b for a, b in zip(mine, row, strict=True)]

    def dropped(self) -> dict[str, int]:
        """Documentos que ha dejado fuera cada regla que ha dejado alguno."""
        return {
            rule: tally.documents for (rule, kind), tally in self.rules.items() if kind == "dropped"
        }

    def _rule(self, rule: str, kind: str) -> Tally:
        return self.rules.setdefault((rule, kind), Tally())

    def _flows(self, origin: str, genre: str) -> tuple[Flow, Flow]:
        return _flow(self.origins, origin), _flow(self.genres, genre)


def _flow(flows: dict[str, Flow], name: str) -> Flow:
    if name not in flows and len(flows) >= MAX_LABELS:
        name = OTHERS
    return flows.setdefault(name, Flow())
