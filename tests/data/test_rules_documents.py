"""Reglas que miran el documento entero: lengua, longitud, calidad y repetición."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace.config.corpus import RulesConfig
from enlace.data.documents import Document
from enlace.data.rules import repetition
from enlace.data.rules.events import Cleaned, LanguageCount, size
from enlace.data.rules.table import RuleTable
from tests.support import make_config

_SPANISH = (
    "El jueves llovió tanto que el arroyo se llevó la pasarela y hubo que ir por el molino.",
    "Mi tía guardaba las cartas en una lata de galletas, atadas y ordenadas por años.",
    "Para la masa se mezclan la harina y la sal, se añade el agua poco a poco y se deja reposar.",
    "El juez podrá acordar la suspensión cuando no cause perjuicio grave a terceros.",
)
_FOREIGN = {
    "en": "She had never seen the harbour so quiet; even the gulls were waiting for the storm.",
    "fr": "Quand nous sommes arrivés au village, il pleuvait encore et la rue était déserte.",
    "pt": "Quando chegamos à aldeia ainda chovia muito e não havia ninguém pela rua molhada.",
    "ca": "Quan vam arribar al poble encara plovia molt i no hi havia ningú pel carrer moll.",
    "it": "Quando siamo arrivati in paese pioveva ancora e non c'era nessuno per la strada.",
    "eu": "Herrira iritsi ginenean oraindik euria ari zuen eta ez zegoen inor kale bustietan.",
    "gl": "Cando chegamos á aldea aínda chovía moito e non había ninguén pola rúa mollada.",
    "ast": "Cuando llegamos al pueblu entá llovía munchu y nun había naide pela cai moyada.",
}


def _clean(text: str, changes: dict[str, Any]) -> Cleaned:
    off = {"data.rules.length.enabled": False}
    return RuleTable(make_config(off | changes).data).clean(Document(text, "a.txt"))


def _language(text: str, **leaves: Any) -> Cleaned:
    changes = {f"data.rules.language.{key}": value for key, value in leaves.items()}
    return _clean(text, {"data.rules.language.enabled": True} | changes)


@pytest.mark.parametrize("language", _FOREIGN)
def test_un_parrafo_en_otra_lengua_se_corta_y_se_cuenta(language: str) -> None:
    foreign = _FOREIGN[language]
    cleaned = _language("\n\n".join([*_SPANISH[:2], foreign, *_SPANISH[2:]]))
    assert cleaned.document is not None
    assert cleaned.document.text == "\n\n".join(_SPANISH)
    gone = size(foreign) + len("\n\n")
    assert [item[:3] for item in cleaned.events] == [("language", "cut", gone)]
    assert sorted(cleaned.languages) == sorted(
        [
            LanguageCount(language, 1, size(foreign), kept=False),
            LanguageCount("es", 4, sum(map(size, _SPANISH)), kept=True),
        ]
    )


@pytest.mark.parametrize("language", _FOREIGN)
def test_un_documento_en_otra_lengua_se_rechaza(language: str) -> None:
    cleaned = _language(f"{_FOREIGN[language]}\n{_FOREIGN[language]}\n{_SPANISH[0]}")
    assert cleaned.document is None
    assert cleaned.events[-1].kind == "dropped"
    assert f"sobre todo {language}" in cleaned.events[-1].example
    assert not any(item.kept for item in cleaned.languages)


@pytest.mark.parametrize("language", _FOREIGN)
def test_una_lengua_pedida_se_queda(language: str) -> None:
    assert _language(_FOREIGN[language], keep=["es", language]).document is not None


def test_la_cita_dentro_de_un_parrafo_espanol_se_queda() -> None:
    text = (
        "El capitán gritó: «Never give up the ship!», y luego, más bajo, para que no lo oyera la "
        "tripulación, añadió que aquello lo había leído en un libro cuando era niño."
    )
    cleaned = _language(f"{text}\n{_SPANISH[0]}")
    assert cleaned.document is not None
    assert cleaned.events == ()


def test_los_parrafos_cortos_siguen_a_sus_vecinos() -> None:
    alone = "Yes, sir.\nNo."
    among_spanish = f"{_SPANISH[0]}\n{alone}\n{_SPANISH[1]}"
    assert _language(among_spanish).events == ()
    english = _FOREIGN["en"]
    among_foreign = "\n".join([*_SPANISH, english, alone, english])
    cleaned = _language(among_foreign).document
    assert cleaned is not None
    assert cleaned.text == "\n".join(_SPANISH)


@pytest.mark.parametrize(
    "text",
    [
        "—¿Vienes?\n—Ahora voy.\n—Trae el pan.\n—¿Cuál?\n—El de ayer.\n—Ya no queda.\n—Pues nada.",
        "Por la vereda del río\nva la tarde despacito,\nlleva un cántaro vacío\ny un silbido.",
        "Ingredientes:\n- 200 g de harina\n- 3 huevos\n- Sal\n- Un chorro de aceite\n- Perejil",
        "Artículo 1.\nQueda derogada la ley anterior.\nArtículo 2.\nEsta ley rige desde mañana.",
        "Encendiose la luz, restableciose la calma y mirábanse los dos sin decirse palabra.",
        "Sí.",
    ],
)
def test_dialogo_verso_receta_y_ley_se_quedan(text: str) -> None:
    document = Document(text, "a.txt")
    changes = {f"data.rules.{name}.enabled": True for name in ("language", "repetition")}
    assert _clean(text, changes).document == document


@pytest.mark.parametrize(
    ("leaf", "value", "why"),
    [
        ("length.min_chars", 500, "caracteres, menos que 500"),
        ("length.max_chars", 10, "caracteres, más que 10"),
        ("length.min_words", 100, "palabras, menos que 100"),
        ("quality.max_symbol_share", 0.01, "símbolos por palabra"),
        ("quality.max_bullet_line_share", 0.2, "viñetas"),
        ("quality.max_ellipsis_line_share", 0.1, "puntos suspensivos"),
        ("quality.min_alphabetic_word_share", 1.0, "tienen letras"),
        ("quality.min_stop_words", 21, "palabras vacías"),
        ("repetition.max_duplicate_line_share", 0.05, "líneas repetidas"),
        ("repetition.max_top_bigram_share", 0.0, "un mismo grupo de 2 palabras"),
        ("repetition.max_duplicate_ngram_share", 0.01, "grupos de 10 palabras"),
    ],
)
def test_cada_umbral_decide(leaf: str, value: float, why: str) -> None:
    text = f"{_SPANISH[0]}…\n- {_SPANISH[1]}\n- {_SPANISH[2]}\n2 + 2\n{_SPANISH[3]}\n{_SPANISH[3]}"
    section = leaf.partition(".")[0]
    loose = {
        "data.rules.length.min_chars": 0,
        "data.rules.repetition.min_words": 0,
        "data.rules.repetition.max_duplicate_line_share": 1.0,
        "data.rules.repetition.max_duplicate_ngram_share": 1.0,
        f"data.rules.{section}.enabled": True,
    }
    assert _clean(text, loose).document is not None
    rejected = _clean(text, loose | {f"data.rules.{leaf}": value})
    assert rejected.document is None
    assert rejected.events[-1].rule == section
    assert why in rejected.events[-1].example


def test_la_longitud_media_de_palabra() -> None:
    changes = {"data.rules.length.enabled": True, "data.rules.length.min_words": 1}
    assert _clean("una casa", changes).document is not None
    assert _clean("x y z", changes).document is None
    assert _clean("abcdefghijklmnopqrstuvwxyz", changes).document is None


_WORDS = st.lists(st.sampled_from(["a", "be", "cid", "dado"]), min_size=12, max_size=60)


@given(_WORDS, st.integers(2, 4))
def test_el_ngrama_mas_frecuente_es_el_que_se_cuenta_a_mano(words: list[str], n: int) -> None:
    ids, lengths = repetition._numbered(words)
    count, share = repetition._top_share(ids, lengths, n, int(lengths.sum()))
    grams = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    assert count == max(grams.values())
    total = sum(map(len, words))
    sizes = {sum(map(len, g)) * c / total for g, c in grams.items() if c == count}
    assert share in (sizes if count > 1 else {0.0})


@given(_WORDS)
def test_los_caracteres_repetidos_son_los_que_se_cuentan_a_mano(words: list[str]) -> None:
    ids, lengths = repetition._numbered(words)
    seen: set[tuple[str, ...]] = set()
    inside = np.zeros(len(words), bool)
    for start in range(len(words) - 9):
        gram = tuple(words[start : start + 10])
        if gram in seen:
            inside[start : start + 10] = True
        seen.add(gram)
    expected = sum(len(word) for word, hit in zip(words, inside, strict=True) if hit)
    total = int(lengths.sum())
    assert repetition._repeated_share(ids, lengths, total) == expected / total


def test_la_tabla_del_esquema_va_en_el_orden_en_que_se_aplica() -> None:
    everything: dict[str, Any] = {"data.rules.personal_data.action": "mask"}
    for name, field in RulesConfig.model_fields.items():
        if field.annotation is bool:
            everything[f"data.rules.{name}"] = True
        elif name != "personal_data":
            everything[f"data.rules.{name}.enabled"] = True
    table = RuleTable(make_config(everything).data)
    applied = [rule.name for rule in table.rules if not rule.name.startswith("empty")]
    assert applied == list(RulesConfig.model_fields)
