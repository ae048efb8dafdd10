"""Etiquetas y entidades de HTML que quedaron dentro de un texto.

No convierte páginas: de eso se ocupa el lector de HTML. Aquí llega texto en el que alguien dejó
`<br>` o `&nbsp;`. Una etiqueta suelta y sin atributos se respeta, porque un manual que dice «la
etiqueta <b>» habla de ella; se quitan las que van en pareja, llevan atributos o están vacías.
"""

import html
import re

from enlace.data.rules.phrases import words

_BLOCK = words(
    """address article aside blockquote br center dd div dl dt figcaption figure footer form h1 h2
    h3 h4 h5 h6 header hr li main nav ol option p pre section table tbody td tfoot th thead tr ul"""
)
_INLINE = words(
    """a abbr b big cite code em font i iframe img input ins kbd label mark q s samp small span
    strike strong sub sup tt u var"""
)
_VOID = frozenset(("br", "hr", "img", "input"))
_HIDDEN = ("script", "style")
# Cada clase se detiene en el siguiente «<», así que ningún carácter se mira dos veces.
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]{0,9})((?:[\s/][^<>]*)?)>")
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z-]{0,30}[ \t]{0,4}=[ \t]{0,4}[\"'\w#/]")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31}[0-9]{0,2});")
# «&amp;amp;lt;» se deshace de una vez: nivel a nivel costaría tiempo cuadrático.
_NESTED = re.compile(r"&(?:(?:amp|AMP|#38|#x26);)+")
_MAX_PASSES = 4


def strip_markup(text: str) -> str:
    """El texto sin etiquetas y con las entidades convertidas en caracteres."""
    for _ in range(_MAX_PASSES):
        before = text
        if "&" in text:
            text = _ENTITY.sub(_character, _NESTED.sub("&", text))
        if "<" in text:
            text = _strip_tags(_strip_hidden(text))
        if text == before:
            break
    return text


def _character(match: re.Match[str]) -> str:
    return html.unescape(match.group())


def _strip_hidden(text: str) -> str:
    """Quita comentarios, guiones y hojas de estilo, con su contenido."""
    text = _cut_between(text, "<!--", "-->")
    for name in _HIDDEN:
        if f"<{name}" in text:
            text = _cut_between(text, f"<{name}", f"</{name}>")
    return text


def _cut_between(text: str, opening: str, closing: str) -> str:
    kept, position = [], 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        kept.append(text[position:start])
        position = end + len(closing)
    return "".join(kept) + text[position:] if position else text


def _strip_tags(text: str) -> str:
    closed = {match[2].lower() for match in _TAG.finditer(text) if match[1]}

    def replace(match: re.Match[str]) -> str:
        name, attributes = match[2].lower(), match[3].strip(" /\t\n")
        known = name in _BLOCK or name in _INLINE
        if not known or not (match[1] or attributes or name in closed or name in _VOID):
            return match[0]
        # «a < b y c > d», o una fórmula que sigue en otro párrafo, no es HTML.
        if attributes and (not _ATTRIBUTE.match(attributes) or "\n\n" in match[3]):
            return match[0]
        return "\n" if name in _BLOCK else ""

    return _TAG.sub(replace, text)
