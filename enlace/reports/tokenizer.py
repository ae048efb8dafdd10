"""El informe del tokenizador para una persona: cuánto comprime cada clase de texto y cómo parte."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from enlace.figures import integer, number
from enlace.reports import markdown

_MEGABYTE = 1_000_000
_NO_NAME = "(sin decir)"
_TITLES = {"origins": "Por origen", "genres": "Por género"}


def tokenizer_markdown(report: Mapping[str, Any]) -> str:
    """El informe de `build_tokenizer` en Markdown."""
    return "\n".join(_parts(report))


def comparison_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lo que mide `compare_tokenizers`, en Markdown: una tabla por medida, un género por fila."""
    measures = (("bytes_per_token", "Bytes por token"), ("tokens_per_word", "Tokens por palabra"))
    header = ("", *(f"{row['name']} ({integer(row['vocab_size'])} ids)" for row in rows))
    parts = []
    for key, title in measures:
        by_genre = zip(*(row["genres"] for row in rows), strict=True)
        table = [
            (cells[0]["name"] or _NO_NAME, *(number(cell[key]) for cell in cells))
            for cells in by_genre
        ]
        table.append(("todo", *(number(row["validation"][key]) for row in rows)))
        parts.append(f"## {title}\n\n{markdown.table(header, table)}")
    return "\n".join(parts)


def _parts(report: Mapping[str, Any]) -> Iterator[str]:
    total = report["validation"]
    yield "# El tokenizador\n"
    yield (
        f"{integer(report['vocab_size'])} ids. En texto de validación, "
        f"{number(total['bytes_per_token'])} bytes por token y "
        f"{number(total['tokens_per_word'])} tokens por palabra.\n"
    )
    for warning in report["warnings"]:
        yield f"Aviso: {markdown.escape(warning)}.\n"
    for key, title in _TITLES.items():
        yield f"## {title}\n"
        header = ("", "MB medidos", "bytes por token", "tokens por palabra")
        yield markdown.table(header, [_measured(row) for row in report[key]])
    if report["sample"]:
        yield "## Con qué se entrenó\n"
        yield markdown.table(
            ("origen", "género", "MB"), [_sampled(row) for row in report["sample"]]
        )
    yield "## Cómo parte las palabras\n"
    rows = [(each["word"], " | ".join(each["pieces"])) for each in report["examples"]]
    yield markdown.table(("palabra", "trozos"), rows)


def _measured(row: Mapping[str, Any]) -> Sequence[str]:
    return (
        row["name"] or _NO_NAME,
        number(row["bytes"] / _MEGABYTE, 3),
        number(row["bytes_per_token"]),
        number(row["tokens_per_word"]),
    )


def _sampled(row: Mapping[str, Any]) -> Sequence[str]:
    names = (row["origin"] or _NO_NAME, row["genre"] or _NO_NAME)
    return (*names, number(row["bytes"] / _MEGABYTE, 3))
