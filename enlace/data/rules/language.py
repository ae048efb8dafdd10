"""La regla de lengua: quita párrafos en otras lenguas y deja fuera los documentos ajenos.

Un párrafo es una línea. Las líneas cortas (versos, réplicas, títulos) se juzgan juntas con sus
vecinas; si ni juntas dan para juzgar, siguen a las que tienen a los lados. Una frase en otra lengua
dentro de un párrafo español se queda: se juzga el párrafo, no la frase.
"""

from collections import Counter
from typing import NamedTuple

from enlace.config.corpus import LanguageRule
from enlace.data.documents import Document
from enlace.data.rules.events import LanguageCount, Rule, Verdict, size
from enlace.data.rules.identify import UNKNOWN, Guess, LanguageIdentifier
from enlace.data.rules.lines import drop_lines


class _Group(NamedTuple):
    """Líneas seguidas que se juzgan juntas: posiciones, texto unido y si basta para juzgar."""

    lines: list[int]
    text: str
    enough: bool


def language_rule(config: LanguageRule) -> Rule:
    """La fila de la tabla que corta párrafos y deja fuera documentos según su lengua."""
    identifier = LanguageIdentifier(config)

    def apply(document: Document) -> Verdict:
        lines = document.text.split("\n")
        groups = _group(lines, config.min_chars)
        guesses = _spread(groups, [_guess(group, identifier) for group in groups])
        counts = _count(groups, guesses, lines)
        judged = sum(item.bytes for item in counts if item.language != UNKNOWN)
        kept = sum(item.bytes for item in counts if item.language != UNKNOWN and item.kept)
        if judged and kept < judged * config.min_document_share:
            worst = max((item for item in counts if not item.kept), key=lambda item: item.bytes)
            reason = f"{100 * kept / judged:.0f} % en {', '.join(config.keep)}; lo demás, "
            lost = tuple(item._replace(kept=False) for item in counts)
            return Verdict(document, f"{reason}sobre todo {worst.language}", lost)
        # Una conversación se juzga entera: sin un turno dejaría de tener sentido.
        foreign = {
            line
            for group, guess in zip(groups, guesses, strict=True)
            if guess.foreign
            for line in group.lines
        }
        if document.turns or not foreign:
            return Verdict(document, None, tuple(item._replace(kept=True) for item in counts))
        return Verdict(document._replace(text=drop_lines(lines, foreign)), None, counts)

    return Rule("language", ("cut", "dropped"), apply)


def _group(lines: list[str], min_chars: int) -> list[_Group]:
    groups: list[_Group] = []
    short: list[int] = []
    letters = 0

    def close() -> None:
        nonlocal short, letters
        if short:
            text = " ".join(lines[index].strip() for index in short)
            groups.append(_Group(short, text, letters >= min_chars))
        short, letters = [], 0

    for index, line in enumerate(lines):
        stripped = line.strip()
        if not stripped:
            if letters >= min_chars:
                close()
        elif len(stripped) >= min_chars and _letters(stripped[: 4 * min_chars]) >= min_chars:
            close()
            groups.append(_Group([index], stripped, True))
        else:
            short.append(index)
            letters += _letters(stripped)
    close()
    return groups


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _guess(group: _Group, identifier: LanguageIdentifier) -> Guess:
    return identifier.guess(group.text) if group.enough else Guess(UNKNOWN, foreign=False)


def _spread(groups: list[_Group], guesses: list[Guess]) -> list[Guess]:
    """Los grupos sin juzgar siguen a sus dos vecinos juzgados cuando estos coinciden."""
    result = list(guesses)
    for index, group in enumerate(groups):
        if group.enough:
            continue
        before = next((guesses[k] for k in range(index - 1, -1, -1) if groups[k].enough), None)
        after = next((guesses[k] for k in range(index + 1, len(groups)) if groups[k].enough), None)
        around = [guess for guess in (before, after) if guess is not None]
        if around and all(guess.foreign for guess in around):
            result[index] = around[0]
    return result


def _count(
    groups: list[_Group], guesses: list[Guess], lines: list[str]
) -> tuple[LanguageCount, ...]:
    paragraphs: Counter[tuple[str, bool]] = Counter()
    weight: Counter[tuple[str, bool]] = Counter()
    for group, guess in zip(groups, guesses, strict=True):
        key = (guess.language, not guess.foreign)
        paragraphs[key] += len(group.lines)
        weight[key] += sum(size(lines[index]) for index in group.lines)
    return tuple(
        LanguageCount(language, paragraphs[language, kept], weight[language, kept], kept)
        for language, kept in sorted(paragraphs)
    )
