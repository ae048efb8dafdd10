"""El informe del corpus como lo lee una persona que decide si entrena con él."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from enlace.figures import integer, number, percent, size
from enlace.files import write_json, write_text
from enlace.reports import html, markdown
from enlace.reports.corpus_words import KINDS, RULES

Report = Mapping[str, Any]
_NO_NAME = "(sin decir)"


class Block(NamedTuple):
    """Una parte del informe: título, frases, y una tabla si la hay (`share`: columna con barra)."""

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    shares: tuple[float, ...] = ()
    bullets: tuple[str, ...] = ()


def write_corpus_report(report: Report, path: Path) -> None:
    """Escribe el informe en `path` (un `.json`) y, a su lado, en `.md` y `.html`."""
    write_json(path, report)
    write_text(path.with_suffix(".md"), corpus_markdown(report))
    write_text(path.with_suffix(".html"), corpus_html(report))


def corpus_markdown(report: Report) -> str:
    """El informe para leer en una terminal o en una forja de git."""
    parts = ["# El corpus\n", _headline(report) + "\n"]
    for block in blocks(report):
        parts.append(f"## {block.title}\n")
        parts += [f"{markdown.escape(line)}\n" for line in block.text]
        if block.bullets:
            parts.append("".join(f"- {markdown.escape(line)}\n" for line in block.bullets))
        if block.rows:
            parts.append(markdown.table(block.header, block.rows))
    return "\n".join(parts)


def corpus_html(report: Report) -> str:
    """El informe como una sola página HTML, sin red."""
    figures = html.cards([html.Card(value, label) for value, label in _figures(report)])
    sections = [("", figures)]
    for block in blocks(report):
        pieces: list[str] = [html.element("p", line) for line in block.text]
        if block.bullets:
            css = "warnings" if block.title == "Avisos" else ""
            pieces.append(html.bullets(block.bullets, css))
        if block.rows:
            header, rows = _with_bars(block)
            pieces.append(html.grid(block.title, header, rows))
        sections.append((block.title, html.join(pieces)))
    return html.page("El corpus", _headline(report), sections, "Informe de la etapa corpus.")


def blocks(report: Report) -> list[Block]:
    """Las partes del informe, en el orden en que se leen."""
    found = [
        *_warnings(report),
        _enough(report),
        _splits(report),
        _flow("Por fuente", "fuente", report["sources"]),
        _flow("Por género", "género", report["genres"]),
        _rules(report),
        _examples(report),
        _duplicates(report),
        _contamination(report),
        _lengths(report),
        _languages(report),
        _licenses(report),
    ]
    return [block for block in found if block.text or block.rows or block.bullets]


def _headline(report: Report) -> str:
    kept = sum(split["documents"] for split in report["splits"].values())
    read = report["read"]["documents"]
    return (
        f"De {integer(read)} documentos quedan {integer(kept)}; para entrenar hay "
        f"{size(report['splits']['train']['epoch_bytes'])} de texto, unos "
        f"{_millions(_tokens(report))} millones de tokens."
    )


def _figures(report: Report) -> list[tuple[str, str]]:
    train = report["splits"]["train"]
    kept = sum(split["bytes"] for split in report["splits"].values())
    return [
        (size(train["epoch_bytes"]), "de texto para entrenar"),
        (_millions(_tokens(report)), "millones de tokens, más o menos"),
        (integer(train["documents"]), "documentos para entrenar"),
        (percent(kept / max(1, report["read"]["bytes"])), "del texto leído se queda"),
    ]


def _warnings(report: Report) -> Iterator[Block]:
    if report["warnings"]:
        yield Block("Avisos", bullets=tuple(report["warnings"]))


def _enough(report: Report) -> Block:
    return Block(
        "¿Basta?",
        (
            f"A {number(report['bytes_per_token'], 1)} bytes por token, en una época hay unos "
            f"{_millions(_tokens(report))} millones de tokens. Lo que el run va a gastar es "
            "train.steps × train.tokens_per_step: si es más, el modelo verá el texto varias veces. "
            "Hasta cuatro apenas se nota; a partir de ahí aprende cada vez menos.",
        ),
    )


def _splits(report: Report) -> Block:
    names = {"train": "entrenamiento", "val": "validación"}
    rows = tuple(
        (
            names[split],
            integer(counts["documents"]),
            size(counts["bytes"]),
            integer(counts["epoch_documents"]),
            size(counts["epoch_bytes"]),
        )
        for split, counts in report["splits"].items()
    )
    header = ("parte", "documentos", "texto", "documentos por época", "texto por época")
    return Block("El reparto", (), header, rows)


def _flow(title: str, what: str, table: Mapping[str, Any]) -> Block:
    rows = tuple(
        (
            name or _NO_NAME,
            integer(row["read"]["documents"]),
            size(row["read"]["bytes"]),
            integer(row["kept"]["documents"]),
            size(row["kept"]["bytes"]),
            ", ".join(f"{rule} {integer(count)}" for rule, count in row["dropped"].items()) or "–",
        )
        for name, row in table.items()
    )
    if set(table) == {""}:
        return Block(title)
    header = (what, "entran", "texto", "quedan", "texto", "fuera por")
    return Block(title, (), header, rows)


def _rules(report: Report) -> Block:
    rows = tuple(
        (RULES.get(rule, rule), rule, KINDS[kind], integer(tally["documents"]), _bytes(tally))
        for kind in KINDS
        for rule, tally in report[kind].items()
    )
    header = ("regla", "clave", "qué hace", "documentos", "texto que quita")
    return Block("Qué hizo cada regla", (), header, rows)


def _examples(report: Report) -> Block:
    rows = tuple(
        (f"{RULES.get(rule, rule)} ({KINDS[kind]})", example)
        for kind in KINDS
        for rule, tally in report[kind].items()
        for example in tally["examples"]
    )
    text = ("Hasta tres por regla: los primeros del corpus.",) if rows else ()
    return Block("Ejemplos", text, ("regla", "dónde y qué"), rows)


def _duplicates(report: Report) -> Block:
    found = report["duplicates"]
    text = (
        f"Quitados por ser iguales a otro: {integer(found['exact'])}.",
        f"Por ser casi iguales a otro: {integer(found['near'])}"
        + (
            f". Grupos: {integer(found['clusters'])}; el mayor, de {integer(found['largest'])}."
            if found["clusters"]
            else "."
        ),
        f"Porque su texto ya estaba en otros más largos: {integer(found['contained'])}.",
        "Siguen, aunque se parecen a otro o comparten texto con él, y van en su misma parte: "
        f"{integer(found['unsplit'])}.",
    )
    rows = tuple((cluster[0], " · ".join(cluster[1:])) for cluster in found["examples"])
    return Block("Repetidos", text, ("se queda", "se van"), rows)


def _contamination(report: Report) -> Block:
    found = report["contamination"]
    if found["action"] == "off":
        text = "No se han buscado textos de evaluación (data.contamination.action: off)."
        return Block("Contaminación", (text,))
    fate = "se han quitado" if found["action"] == "remove" else "siguen en el corpus"
    text = (
        f"De {integer(found['texts'])} textos de evaluación, {integer(found['found'])} están en "
        f"{integer(found['documents'])} documentos, que {fate}. Otros "
        f"{integer(found['too_short'])} son demasiado cortos para buscarlos."
    )
    rows = tuple((name, integer(count)) for name, count in found["files"].items())
    examples = tuple(
        f"{each['document']} contiene {each['text']} ({percent(each['overlap'], 0)}): "
        f"«{each['start']}»"
        for each in found["examples"]
    )
    return Block(
        "Contaminación", (text,), ("evaluación", "textos hallados"), rows, bullets=examples
    )


def _lengths(report: Report) -> Block:
    bins = [each for each in report["lengths"] if each["documents"]]
    most = max((each["documents"] for each in bins), default=1)
    rows = tuple(
        (_range(each["from"], each["to"]), integer(each["documents"]), size(each["bytes"]))
        for each in bins
    )
    shares = tuple(each["documents"] / most for each in bins)
    return Block("Longitudes", (), ("caracteres", "documentos", "texto"), rows, shares)


def _languages(report: Report) -> Block:
    rows = tuple(
        (
            language,
            integer(row["read"]["paragraphs"]),
            size(row["read"]["bytes"]),
            integer(row["kept"]["paragraphs"]),
            size(row["kept"]["bytes"]),
        )
        for language, row in report["languages"].items()
    )
    header = ("lengua", "párrafos", "texto", "párrafos que quedan", "texto")
    return Block("Lenguas", (), header, rows)


def _licenses(report: Report) -> Block:
    rows = tuple(
        (name or _NO_NAME, integer(row["documents"]), size(row["bytes"]))
        for name, row in report["licenses"].items()
    )
    return Block("Licencias", (), ("licencia", "documentos", "texto"), rows)


def _with_bars(block: Block) -> tuple[Sequence[str], list[Sequence[str]]]:
    if not block.shares:
        return block.header, list(block.rows)
    rows = [(*row, html.bar(share)) for row, share in zip(block.rows, block.shares, strict=True)]
    return (*block.header, ""), list(rows)


def _range(start: int, end: int | None) -> str:
    return f"{integer(start)} o más" if end is None else f"de {integer(start)} a {integer(end - 1)}"


def _bytes(tally: Mapping[str, Any]) -> str:
    return size(tally["bytes"]) if tally["documents"] else "–"


def _tokens(report: Report) -> float:
    return float(report["splits"]["train"]["epoch_bytes"] / report["bytes_per_token"])


def _millions(tokens: float) -> str:
    return number(tokens / 1e6, 1)
