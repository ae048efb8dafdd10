"""Qué se leerá de unos ficheros y qué no, sin leerlos enteros: para decirlo antes de copiarlos."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from enlace.data.documents import Rejection
from enlace.data.formats import extensions, format_of, refusal
from enlace.data.readers.encoding import open_text


class FormatCount(NamedTuple):
    """Ficheros de un formato y bytes que ocupan, comprimidos si lo están."""

    files: int
    bytes: int


class Survey(NamedTuple):
    """Lo que se leerá, por formato en orden alfabético, y lo que no, con su motivo.

    `encodings` cuenta los ficheros de texto que no están en UTF-8, por codificación.
    """

    formats: dict[str, FormatCount]
    encodings: dict[str, int]
    refused: tuple[Rejection, ...]


def survey_files(files: Mapping[str, Path]) -> Survey:
    """Mira la extensión y el principio de cada fichero (nombre → ruta), que debe estar entero.

    Raises:
        DataError: uno está dañado (`enlace.data.readers.whole.check_whole` lo dice antes y mejor).
    """
    formats: dict[str, FormatCount] = {}
    encodings: dict[str, int] = {}
    refused = []
    known = extensions("text")
    for name, path in files.items():
        shown = name or path.name
        size = path.stat().st_size
        kind = format_of(shown) if shown.lower().endswith(known) else None
        if kind is None:
            refused.append(Rejection("unknown_format", shown, refusal(shown), size))
            continue
        found = _look(path, kind)
        if isinstance(found, Rejection):
            refused.append(found._replace(source=shown, size=size))
            continue
        if found != "utf-8":
            encodings[found] = encodings.get(found, 0) + 1
        count = formats.get(kind, FormatCount(0, 0))
        formats[kind] = FormatCount(count.files + 1, count.bytes + size)
    return Survey(dict(sorted(formats.items())), dict(sorted(encodings.items())), tuple(refused))


def _look(path: Path, kind: str) -> str | Rejection:
    """La codificación de un fichero que se podrá leer, o por qué no se podrá."""
    if kind == "parquet":
        return "utf-8"
    opened = open_text(path, "detect")
    first = next(opened.blocks, b"")
    if opened.encoding is None:
        return Rejection("bad_bytes", "", opened.problem, 0)
    if not first.strip():
        return Rejection("empty", "", "está vacío o empieza con un mebibyte en blanco", 0)
    return opened.encoding
