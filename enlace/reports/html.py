"""La página HTML de los informes: un solo fichero, sin red, con todo el texto escapado.

Lo que ya es HTML lleva el tipo `Html`; cualquier otra cadena se escapa al entrar en la página, de
modo que un texto generado por el modelo no puede convertirse en etiquetas.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from enlace.reports.text import visible

_STYLE = """
:root { --ink:#1f2328; --soft:#5c6570; --line:#d9dde2; --paper:#fbfaf7; --card:#ffffff;
  --accent:#9a3324; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e4df; --soft:#a2a8b0; --line:#3a3f45;
  --paper:#17191c; --card:#1f2226; --accent:#e58a72; } }
* { box-sizing:border-box; }
body { margin:0 auto; padding:2.5rem 1.25rem 4rem; max-width:54rem; background:var(--paper);
  color:var(--ink); font:1.02rem/1.6 Charter,"Bitstream Charter",Georgia,Cambria,serif; }
h1 { font-size:2rem; line-height:1.2; margin:0 0 .3rem; }
h2 { font-size:1.25rem; margin:2.6rem 0 .8rem; border-bottom:1px solid var(--line);
  padding-bottom:.3rem; }
.subtitle, figcaption, .note { color:var(--soft); }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(11rem,1fr)); gap:.8rem;
  margin:1.6rem 0 1rem; }
.card { background:var(--card); border:1px solid var(--line); border-radius:.6rem; padding:1rem; }
.card b { display:block; font-size:1.75rem; line-height:1.2; color:var(--accent);
  font-variant-numeric:tabular-nums; }
.card span { font-size:.9rem; color:var(--soft); }
table { border-collapse:collapse; width:100%; }
th, td { text-align:left; padding:.4rem .8rem .4rem 0; border-bottom:1px solid var(--line);
  vertical-align:top; overflow-wrap:anywhere; }
th { font-weight:600; white-space:nowrap; width:1%; }
caption { text-align:left; color:var(--soft); padding:.2rem 0 .4rem; }
.grid { font-size:.92rem; margin-bottom:1.6rem; }
.grid td { font-variant-numeric:tabular-nums; }
.bar { display:block; height:.7rem; min-width:1px; background:var(--accent); border-radius:.2rem; }
.warnings { background:var(--card); border-left:.25rem solid var(--accent); margin:0;
  padding:.8rem 1rem .8rem 2.2rem; border-radius:0 .6rem .6rem 0; }
summary { cursor:pointer; }
code { font:.88em ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace; }
figure { margin:0; }
figure img { width:100%; height:auto; background:#fff; border:1px solid var(--line);
  border-radius:.6rem; }
blockquote { margin:0 0 1.1rem; padding:.9rem 1.1rem; background:var(--card);
  border-left:.25rem solid var(--accent); border-radius:0 .6rem .6rem 0; white-space:pre-wrap;
  overflow-wrap:anywhere; unicode-bidi:isolate; }
blockquote strong { color:var(--accent); }
footer { margin-top:3rem; font-size:.9rem; color:var(--soft); }
"""


class Html(str):
    """Una cadena que ya es HTML válido y no se escapa otra vez."""

    __slots__ = ()


class Card(NamedTuple):
    """Una cifra destacada: el valor, grande, y qué es."""

    value: str
    label: str


def text(content: str) -> Html:
    """Texto escapado, con los caracteres de control a la vista; lo que ya es `Html` no cambia."""
    return content if isinstance(content, Html) else Html(escape(visible(content), quote=True))


def element(tag: str, *content: str, css: str = "") -> Html:
    """`<tag class="css">…</tag>` con cada pieza escapada si hace falta."""
    attribute = f' class="{escape(css, quote=True)}"' if css else ""
    return Html(f"<{tag}{attribute}>{join(content)}</{tag}>")


def join(pieces: Iterable[str]) -> Html:
    """Las piezas seguidas, cada una escapada si hace falta."""
    return Html("".join(text(piece) for piece in pieces))


def table(rows: Sequence[tuple[str, str]]) -> Html:
    """Una tabla de dos columnas: nombre y valor."""
    return element(
        "table",
        element(
            "tbody",
            *(element("tr", element("th", name), element("td", value)) for name, value in rows),
        ),
    )


def grid(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Una tabla con título y encabezados; la primera celda de cada fila la nombra."""
    columns = [Html(f'<th scope="col">{text(name)}</th>') for name in header]
    lines = [
        element(
            "tr",
            Html(f'<th scope="row">{text(first)}</th>'),
            *(element("td", cell) for cell in others),
        )
        for first, *others in rows
    ]
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *columns)),
        element("tbody", *lines),
        css="grid",
    )


def bar(share: float) -> Html:
    """Una barra que ocupa esa parte (0 a 1) de su celda; es un adorno del número que va al lado."""
    width = round(100 * min(max(share, 0.0), 1.0), 1)
    return Html(f'<span class="bar" style="width:{width}%" aria-hidden="true"></span>')


def bullets(items: Sequence[str], css: str = "") -> Html:
    """Una lista de puntos."""
    return element("ul", *(element("li", item) for item in items), css=css)


def cards(figures: Sequence[Card]) -> Html:
    """Las cifras destacadas, en una fila que se parte en pantallas estrechas."""
    return element(
        "div",
        *(
            element("div", element("b", card.value), element("span", card.label), css="card")
            for card in figures
        ),
        css="cards",
    )


def svg_figure(svg: bytes, description: str, caption: str) -> Html:
    """Una figura SVG dentro de la propia página (base64), con texto alternativo."""
    source = base64.b64encode(svg).decode("ascii")
    image = Html(
        f'<img src="data:image/svg+xml;base64,{source}" alt="{escape(description, quote=True)}">'
    )
    return element("figure", image, element("figcaption", caption))


def page(title: str, subtitle: str, sections: Sequence[tuple[str, Html]], footer: str) -> str:
    """La página entera; una sección con título vacío no lleva encabezado.

    Args:
        title: el título del documento y de la página.
        subtitle: la frase que va debajo.
        sections: pares (título, contenido).
        footer: la línea final (el linaje).
    """
    body = join(
        element("section", element("h2", heading) if heading else Html(""), content)
        for heading, content in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="es">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{element('title', title)}\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{element('h1', title)}\n{element('p', subtitle, css='subtitle')}\n{body}\n"
        f"{element('footer', footer)}\n</body>\n</html>\n"
    )
