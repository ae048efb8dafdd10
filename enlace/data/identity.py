"""El id de un documento y la parte del corpus que le toca."""

import hashlib
import json
import math

from enlace.data.documents import Document


def document_id(document: Document) -> str:
    """128 bits hexadecimales del SHA-256 del contenido limpio: no depende de su procedencia."""
    content = document.text
    if document.turns:
        content = json.dumps([list(turn) for turn in document.turns], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:32]


def validation_limit(val_fraction: float) -> int:
    """Van a validación los ids cuyos primeros 64 bits, como entero, son menores que este.

    Así el reparto no cambia cuando el corpus crece y, al subir `val_fraction`, nadie vuelve de
    validación a entrenamiento.
    """
    return math.ceil(val_fraction * 2**64)
