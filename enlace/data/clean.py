"""Las cuentas de la limpieza: cada regla de la tabla, los lectores y los duplicados exactos."""

from typing import Any

from enlace.config.schema import DataConfig
from enlace.data.documents import Document, Rejection
from enlace.data.identity import document_id
from enlace.data.rules.events import size
from enlace.data.rules.table import RuleTable

MAX_EXAMPLES = 3


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
    """Aplica la tabla de reglas, quita los duplicados exactos y lleva la cuenta de todo.

    La única memoria que crece con el corpus es la de los duplicados: 16 bytes (y lo que Python les
    añade, unos 90 en total) por documento distinto.
    """

    def __init__(self, data: DataConfig) -> None:
        self.table = RuleTable(data)
        self.seen: set[bytes] = set()
        extra = ("duplicate", "bad_bytes", "bad_record", "unknown_format")
        self.changes = {name: Tally() for name, kind in self.table.names if kind != "dropped"}
        self.dropped = {name: Tally() for name, kind in self.table.names if kind == "dropped"}
        self.dropped |= {name: Tally() for name in extra}

    def clean(self, document: Document) -> Document | None:
        """El documento limpio, o None si una regla lo deja fuera (ya contado)."""
        cleaned = self.table.clean(document)
        for item in cleaned.events:
            tallies = self.dropped if item.kind == "dropped" else self.changes
            tallies[item.rule].add(item.bytes, item.example)
        if cleaned.document is None:
            return None
        digest = bytes.fromhex(document_id(cleaned.document))
        if digest in self.seen:
            detail = f"contenido repetido (id {digest.hex()})"
            text = cleaned.document.text
            self.reject(Rejection("duplicate", document.source, detail, size(text)))
            return None
        self.seen.add(digest)
        return cleaned.document

    def reject(self, rejection: Rejection) -> None:
        """Cuenta un rechazo de un lector."""
        example = f"{rejection.source}: {rejection.detail}"
        self.dropped[rejection.rule].add(rejection.size, example)

    def report(self) -> dict[str, Any]:
        """Las cuentas de cada cambio y de cada regla que deja fuera documentos."""
        return {
            "changes": {name: tally.as_dict() for name, tally in self.changes.items()},
            "dropped": {name: tally.as_dict() for name, tally in self.dropped.items()},
        }
