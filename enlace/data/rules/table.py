"""La tabla de reglas en su orden: de los bytes mal leídos a los datos personales."""

from enlace.config.corpus import RulesConfig
from enlace.config.schema import DataConfig
from enlace.data.documents import Document
from enlace.data.rules.boilerplate import boilerplate_cutter
from enlace.data.rules.characters import CHANGES
from enlace.data.rules.events import (
    Cleaned,
    Event,
    Kind,
    LanguageCount,
    Rule,
    event,
    filter_rule,
    text_rule,
)
from enlace.data.rules.language import language_rule
from enlace.data.rules.markup import strip_markup
from enlace.data.rules.mojibake import repair
from enlace.data.rules.personal import personal_data_rule
from enlace.data.rules.prose import length_reason, quality_reason
from enlace.data.rules.repetition import repetition_reason


class RuleTable:
    """Aplica las reglas encendidas en `data.rules`, en orden, hasta que una rechace el documento.

    No guarda nada entre documentos: el resultado no depende del orden ni del proceso.
    """

    def __init__(self, data: DataConfig) -> None:
        self.rules = _rules(data.rules)

    @property
    def names(self) -> tuple[tuple[str, Kind], ...]:
        """Cada regla encendida con cada cosa que puede hacer, en el orden del informe."""
        return tuple((rule.name, kind) for rule in self.rules for kind in rule.kinds)

    def clean(self, document: Document) -> Cleaned:
        """El documento limpio y lo que cada regla hizo con él."""
        events: list[Event] = []
        languages: tuple[LanguageCount, ...] = ()
        for rule in self.rules:
            verdict = rule.apply(document)
            languages += verdict.languages
            happened = event(rule, document, verdict)
            if happened is not None:
                events.append(happened)
            if verdict.rejected is not None:
                return Cleaned(None, tuple(events), languages)
            document = verdict.document
        return Cleaned(document, tuple(events), languages)


def _rules(config: RulesConfig) -> tuple[Rule, ...]:
    """Las reglas encendidas. Las tres de documentos vacíos no se apagan."""
    rules = []
    # Las entidades, antes: «&Atilde;&sup3;» es mojibake cuando deja de ser una entidad. Y las dos
    # antes que los controles, porque el mojibake está hecho de ellos.
    if config.html:
        rules.append(text_rule("html", "changed", strip_markup))
    if config.mojibake:
        rules.append(text_rule("mojibake", "changed", repair))
    rules += [
        text_rule(change.name, "changed", change.apply)
        for change in CHANGES
        if getattr(config, change.name)
    ]
    if config.boilerplate.enabled:
        cut = boilerplate_cutter(config.boilerplate.max_line_chars)
        rules.append(text_rule("boilerplate", "cut", cut))
    if config.language.enabled:
        rules.append(language_rule(config.language))
    rules.append(filter_rule("empty", _empty))
    rules.append(filter_rule("empty_turn", _empty_turn))
    if config.length.enabled:
        rules.append(filter_rule("length", length_reason(config.length)))
    if config.quality.enabled:
        rules.append(filter_rule("quality", quality_reason(config.quality)))
    if config.repetition.enabled:
        rules.append(filter_rule("repetition", repetition_reason(config.repetition)))
    if config.personal_data.action != "keep":
        rules.append(personal_data_rule(config.personal_data))
    return tuple(rules)


def _empty(document: Document) -> str | None:
    return None if document.text and not document.text.isspace() else "sin texto"


def _empty_turn(document: Document) -> str | None:
    for position, turn in enumerate(document.turns, start=1):
        if not turn.content.strip():
            return f"el turno {position} ({turn.role}) está vacío"
    return None
