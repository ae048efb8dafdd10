"""De un registro (jsonl, json o parquet) a documentos: columnas de texto y conversaciones."""

from collections.abc import Iterator
from typing import Any

from enlace.config.schema import DataConfig
from enlace.data.conversations import read_turns
from enlace.data.documents import Document, conversation

_SHOWN_FIELDS = 8
_SEARCH_LEVELS = 6


def documents_of(record: dict[str, Any], data: DataConfig) -> list[Document] | str:
    """Los documentos de un registro, sin `source` ni `origin`, o por qué no da ninguno.

    Con `data.format` = text, un campo como `data.paragraphs.context` baja por los objetos y recorre
    las listas: cada texto que encuentra es un documento.
    """
    found = _turns(record) if data.format == "chat" else _texts(record, data.text_column)
    if isinstance(found, str):
        return found
    genre = _label(record, data.genre_column)
    license_name = _label(record, data.license_column)
    return [document._replace(genre=genre, license=license_name) for document in found]


def values_at(record: Any, column: str) -> Iterator[Any]:
    """Los valores de `column`, con puntos para bajar; un campo que se llama así va primero."""
    if isinstance(record, list):
        for item in record:
            yield from values_at(item, column)
    elif isinstance(record, dict):
        if column in record:
            yield record[column]
            return
        first, _, rest = column.partition(".")
        if rest and first in record:
            yield from values_at(record[first], rest)


def text_fields(record: Any, prefix: str = "", levels: int = _SEARCH_LEVELS) -> list[str]:
    """Los campos con texto de un registro, escritos como espera `data.text_column`."""
    if isinstance(record, list):
        return text_fields(record[0], prefix, levels) if record else []
    if not isinstance(record, dict) or not levels:
        return []
    found = []
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, str):
            found.append(name)
        else:
            found += text_fields(value, f"{name}.", levels - 1)
    return found


def _texts(record: dict[str, Any], column: str) -> list[Document] | str:
    values = list(values_at(record, column))
    texts = [value for value in values if isinstance(value, str)]
    if texts and len(texts) == len(values):
        return [Document(text, "") for text in texts]
    if values:
        return f"el campo «{column}» no es texto"
    fields = text_fields(record)
    shown = ", ".join(fields[:_SHOWN_FIELDS])
    more = ", …" if len(fields) > _SHOWN_FIELDS else ""
    present = f"tiene {shown}{more}" if fields else "no tiene ninguno de texto"
    return f"falta el campo «{column}» ({present}); revisa data.text_column"


def _label(record: dict[str, Any], column: str) -> str:
    value = next(values_at(record, column), "") if column else ""
    return value if isinstance(value, str) else ""


def _turns(record: dict[str, Any]) -> list[Document] | str:
    turns = read_turns(record)
    return turns if isinstance(turns, str) else [conversation(turns, "")]
