"""De un registro crudo a sus documentos: una función pura, igual en cualquier proceso."""

import json
from typing import Any, NamedTuple

from enlace.config.schema import DataConfig
from enlace.data.documents import Damage, Document, Rejection
from enlace.data.readers.damage import mend
from enlace.data.readers.fields import documents_of
from enlace.data.readers.html import html_text
from enlace.data.readers.markdown import without_front_matter
from enlace.data.readers.records import RawRecord
from enlace.errors import DataError

GENERAL = "general"


def parse_record(record: RawRecord, data: DataConfig) -> list[Document | Rejection]:
    """Los documentos de un registro, o por qué no da ninguno; nunca una lista vacía.

    Raises:
        DataError: bytes que no son UTF-8 con `data.on_bad_bytes` = fail.
    """
    items = _parse(record, data)
    if data.on_bad_bytes == "fail":
        for item in items:
            if isinstance(item, Rejection) and item.rule == "bad_bytes":
                raise DataError(
                    f"{item.source}: {item.detail}; conviértelo a UTF-8 o pon "
                    "data.on_bad_bytes: detect"
                )
    return items


def _parse(record: RawRecord, data: DataConfig) -> list[Document | Rejection]:
    if isinstance(record.payload, dict):
        return _from_record(record.payload, record, data, record.source)
    try:
        return _understood(record.payload.decode("utf-8"), record, data)
    except UnicodeDecodeError as error:
        problem = _problem(record, record.payload, error)
    mended = mend(record.payload) if data.on_bad_bytes == "detect" else None
    if mended is None:
        return [Rejection("bad_bytes", record.source, problem, len(record.payload))]
    damage = Damage(mended.damaged, problem)
    items = _understood(mended.text, record, data)
    return [item if isinstance(item, Rejection) else item._replace(damage=damage) for item in items]


def _understood(text: str, record: RawRecord, data: DataConfig) -> list[Document | Rejection]:
    match record.kind:
        case "record":
            return _from_line(text, record, data)
        case "json":
            return _from_json(text, record, data)
        case "html":
            try:
                text = html_text(text)
            except ValueError as error:
                return [_reject(record, "bad_record", str(error))]
        case "markdown":
            text = without_front_matter(text) if record.part == 0 else text
        case _:
            pass
    if not text.strip():
        return [_reject(record, "empty", "no tiene texto")]
    return [_labelled(Document(text, record.source), record, data)]


def _from_line(text: str, record: RawRecord, data: DataConfig) -> list[Document | Rejection]:
    value = _json(text)
    if isinstance(value, _BadJson):
        problem = value.problem
        if value.position >= len(text.rstrip()):
            problem += (
                "; la línea acaba a medias: cada registro debe ocupar una sola, y si el fichero es "
                "un solo JSON con sangría, llámalo .json"
            )
        return [_reject(record, "bad_record", problem)]
    if not isinstance(value, dict):
        return [_reject(record, "bad_record", "la línea no es un objeto JSON")]
    return _from_record(value, record, data, record.source)


def _from_json(text: str, record: RawRecord, data: DataConfig) -> list[Document | Rejection]:
    value = _json(text)
    if isinstance(value, _BadJson):
        return [_reject(record, "bad_record", value.problem)]
    entries = value if isinstance(value, list) else [value]
    items: list[Document | Rejection] = []
    for number, entry in enumerate(entries, start=1):
        source = f"{record.source}:{number}" if isinstance(value, list) else record.source
        if isinstance(entry, dict):
            items += _from_record(entry, record, data, source)
        else:
            problem = Rejection("bad_record", source, "no es un objeto JSON", 0)
            items.append(problem)
    return items or [_reject(record, "empty", "no tiene ningún registro")]


def _from_record(
    value: dict[str, Any], record: RawRecord, data: DataConfig, source: str
) -> list[Document | Rejection]:
    size = _size(record, value)
    found = documents_of(value, data)
    if isinstance(found, str):
        return [Rejection("bad_record", source, found, size)]
    items: list[Document | Rejection] = []
    for number, document in enumerate(found, start=1):
        place = source if len(found) == 1 else f"{source}#{number}"
        if problem := _surrogate(document.text):
            items.append(Rejection("bad_bytes", place, problem, size))
        else:
            items.append(_labelled(document._replace(source=place), record, data))
    return items


class _BadJson(NamedTuple):
    problem: str
    position: int = 0


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        return _BadJson(f"JSON inválido en el carácter {error.pos + 1}", error.pos)
    except ValueError:
        return _BadJson("JSON inválido: tiene un número de miles de cifras")
    except RecursionError:
        return _BadJson("JSON inválido: tiene demasiados niveles")


def _labelled(document: Document, record: RawRecord, data: DataConfig) -> Document:
    if record.origin >= 0:
        entry = data.sources[record.origin]
        return document._replace(origin=entry.name, license=document.license or entry.license)
    folder, slash, _ = document.source.partition("/")
    return document._replace(origin=folder if slash else GENERAL)


def _problem(record: RawRecord, content: bytes, error: UnicodeDecodeError) -> str:
    if record.encoding != "utf-8":
        return f"el fichero parece {record.encoding}, pero aquí hay bytes que no lo son"
    place = record.offset + error.start
    return f"no es UTF-8: byte 0x{content[error.start]:02X} en la posición {place}"


def _surrogate(text: str) -> str | None:
    # JSON admite "\ud800" suelto, que ningún UTF-8 puede guardar.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"sustituto UTF-16 suelto en el carácter {error.start}"
    return None


def _reject(record: RawRecord, rule: str, detail: str) -> Rejection:
    return Rejection(rule, record.source, detail, _size(record, record.payload))


def _size(record: RawRecord, value: Any) -> int:
    if isinstance(record.payload, bytes) and record.kind != "json":
        return len(record.payload)
    if isinstance(value, bytes):
        return len(value)
    return len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
