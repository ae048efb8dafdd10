"""Longitud, calidad y repetición: filtros que miran el documento entero.

Las señales son las de Gopher (Rae et al., 2021, tabla A1) con las palabras vacías del español, y
los umbrales, los que dejan pasar recetas, listas, diálogo, verso y leyes (docs/cleaning.md).
"""

import re
from collections.abc import Callable

from enlace.config.corpus import LengthRule, QualityRule
from enlace.data.documents import Document
from enlace.data.rules.phrases import words

_STOP_WORDS = words("de la que el en y a los se del las un por con no una su para es al lo")
# El guion con espacio: sin él empieza un parlamento («-Pase usted»).
_BULLETS = ("•", "·", "‣", "▪", "●", "○", "- ", "* ", "+ ")
_ELLIPSIS = ("...", "…")
_LETTER = re.compile(r"[^\W\d_]")


def length_reason(rule: LengthRule) -> Callable[[Document], str | None]:
    """Por qué un documento no tiene la longitud pedida."""

    def reason(document: Document) -> str | None:
        text = document.text
        if len(text) < rule.min_chars:
            return f"{len(text)} caracteres, menos que {rule.min_chars}"
        if len(text) > rule.max_chars:
            return f"{len(text)} caracteres, más que {rule.max_chars}"
        tokens = text.split()
        if len(tokens) < rule.min_words:
            return f"{len(tokens)} palabras, menos que {rule.min_words}"
        mean = sum(map(len, tokens)) / len(tokens) if tokens else 0.0
        if rule.min_words and not rule.min_mean_word_chars <= mean <= rule.max_mean_word_chars:
            return (
                f"{mean:.1f} caracteres por palabra, fuera de {rule.min_mean_word_chars}–"
                f"{rule.max_mean_word_chars}"
            )
        return None

    return reason


def quality_reason(rule: QualityRule) -> Callable[[Document], str | None]:
    """Por qué un documento no parece prosa, diálogo, verso ni lista en español."""

    def reason(document: Document) -> str | None:
        text = document.text
        tokens = text.split()
        if not tokens:
            return None
        symbols = (text.count("#") + text.count("…") + text.count("...")) / len(tokens)
        if symbols > rule.max_symbol_share:
            return f"{symbols:.2f} símbolos por palabra"
        lines = [line for raw in text.split("\n") if (line := raw.strip())]
        bullets = sum(line.startswith(_BULLETS) for line in lines) / len(lines)
        if bullets > rule.max_bullet_line_share:
            return f"{bullets:.2f} de las líneas son viñetas"
        dots = sum(line.endswith(_ELLIPSIS) for line in lines) / len(lines)
        if dots > rule.max_ellipsis_line_share:
            return f"{dots:.2f} de las líneas acaban en puntos suspensivos"
        # Casi todas las palabras son solo letras; a las demás se les busca una.
        lettered = sum(word.isalpha() or _LETTER.search(word) is not None for word in tokens)
        if lettered < rule.min_alphabetic_word_share * len(tokens):
            return f"{lettered / len(tokens):.2f} de las palabras tienen letras"
        found = len(_STOP_WORDS.intersection(map(str.lower, tokens)))
        if found < rule.min_stop_words:
            return f"{found} palabras vacías del español, menos que {rule.min_stop_words}"
        return None

    return reason
