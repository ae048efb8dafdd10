"""Qué extensiones se leen y qué se le dice a quien trae otra cosa."""

from pathlib import PurePosixPath
from typing import Literal

Format = Literal["txt", "markdown", "html", "jsonl", "json", "parquet"]

COMPRESSIONS = ("", ".gz", ".bz2", ".zst", ".xz")
_FORMATS: dict[str, Format] = {
    ".txt": "txt",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".jsonl": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
_CHAT_FORMATS = ("jsonl", "json", "parquet")
_ARCHIVE = "guarda varios ficheros; descomprímelo y trae la carpeta"
_DOCUMENT = "conviértelo a .txt o .html (por ejemplo, con pandoc o LibreOffice)"
_TABLE = "conviértelo a .jsonl o .parquet con una columna de texto"
_REMEDIES = {
    **dict.fromkeys((".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar"), _ARCHIVE),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf", ".epub", ".mobi"), _DOCUMENT),
    **dict.fromkeys((".csv", ".tsv", ".xls", ".xlsx", ".ods"), _TABLE),
    ".pdf": "saca su texto a un .txt (por ejemplo, con pdftotext)",
    ".ndjson": "cámbiale la extensión a .jsonl",
}


def extensions(format: str) -> tuple[str, ...]:  # noqa: A002 - es el nombre de la clave
    """Las extensiones que se leen con `data.format` igual a `format`."""
    kinds = [
        suffix for suffix, kind in _FORMATS.items() if format != "chat" or kind in _CHAT_FORMATS
    ]
    return tuple(suffix + compression for suffix in kinds for compression in COMPRESSIONS)


def format_of(name: str) -> Format | None:
    """El formato que anuncia la extensión de `name`, sin mirar la compresión; None si no se lee."""
    return _FORMATS.get(_suffix(name))


def refusal(name: str) -> str:
    """Por qué no se lee `name` y qué hacer con él."""
    suffix = _suffix(name)
    if suffix in _FORMATS and _FORMATS[suffix] not in _CHAT_FORMATS:
        return f"un {suffix} no trae conversaciones; ponlas en un .jsonl"
    if not suffix and name.lower().endswith(COMPRESSIONS[1:]):
        last = PurePosixPath(name).suffix
        return f"no se sabe qué hay dentro; si es texto, llámalo .txt{last.lower()}"
    remedy = _REMEDIES.get(suffix, "si es texto, cámbiale la extensión a .txt")
    return f"extensión desconocida {suffix or '(ninguna)'}; {remedy}"


def _suffix(name: str) -> str:
    lowered = name.lower()
    for compression in COMPRESSIONS[1:]:
        lowered = lowered.removesuffix(compression)
    return PurePosixPath(lowered).suffix
