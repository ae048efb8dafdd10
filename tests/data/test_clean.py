"""Limpieza: arreglos, conversaciones, id y reparto."""

import unicodedata

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace.data.documents import Document, Turn, conversation
from enlace.data.duplicates.resolve import KEPT, Resolution
from enlace.data.identity import document_id
from enlace.data.preparation.fates import decide_fates
from enlace.data.rules.characters import CHANGES, normalize
from enlace.data.rules.table import RuleTable
from tests.support import make_config

_ANY = st.text(st.characters(codec="utf-8"))
_SWITCHES = {f"data.rules.{change.name}": True for change in CHANGES}


def _rules() -> RuleTable:
    return RuleTable(make_config(_SWITCHES).data)


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("\ufeffhola", "hola"),
        ("uno\r\ndos\rtres", "uno\ndos\ntres"),
        ("uno\u2028dos\x0ctres\x85cuatro", "uno\ndos\ntres\ncuatro"),
        ("a\x00b\x07c\x1fd\x7fe\x9ff", "abcdef"),
        ("tab\tse queda\ny el salto", "tab\tse queda\ny el salto"),
        ("ca\u00admión invi\u200bsible\ufeff\u2060", "camión invisible"),
        ("cafe\u0301", "café"),
        ("cafe\u200b\u0301", "café"),
        ("  \n hola \n\n", "hola"),
        (" \u00a0\n", ""),
    ],
)
def test_los_arreglos(dirty: str, clean: str) -> None:
    assert normalize(dirty) == clean


@given(_ANY)
def test_limpiar_dos_veces_es_limpiar_una(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not {"\x00", "\r", "\ufeff", "\u00ad", "\u200b"} & set(once)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]))))
def test_lf_crlf_bom_y_salto_final_dan_el_mismo_texto(lines: list[str]) -> None:
    plain = "\n".join(lines)
    variants = [plain, "\r\n".join(lines), "\r".join(lines), "\ufeff" + plain, plain + "\n"]
    assert len({normalize(variant) for variant in variants}) == 1


def test_una_conversacion_se_limpia_turno_a_turno() -> None:
    rules = _rules()
    turns = (Turn("user", " hola\r\n"), Turn("assistant", "\ufeffsí"))
    cleaned = rules.clean(conversation(turns, "a:1")).document
    assert cleaned is not None
    assert cleaned.turns == (Turn("user", "hola"), Turn("assistant", "sí"))
    assert cleaned.text == "hola\nsí"
    blank = conversation((Turn("user", "hola"), Turn("assistant", "\u200b ")), "a:2")
    rejected = rules.clean(blank)
    assert rejected.document is None
    assert rejected.events[-1].example == "a:2: el turno 2 (assistant) está vacío"


def test_el_mismo_texto_repartido_en_otros_turnos_no_es_duplicado() -> None:
    first = conversation((Turn("user", "a"), Turn("assistant", "b")), "x")
    second = conversation((Turn("assistant", "a"), Turn("user", "b")), "x")
    assert first.text == second.text
    assert document_id(first) != document_id(second)


@given(_ANY.filter(bool), st.floats(0.001, 0.499), st.floats(0.001, 0.499))
def test_el_reparto_depende_solo_del_texto_y_crece_con_la_fraccion(
    text: str, one: float, other: float
) -> None:
    identifier = document_id(Document(text, "a.txt"))
    assert identifier == document_id(Document(text, "otra/ruta.jsonl:7"))
    low, high = sorted((one, other))
    if _in_validation([identifier], low).all():
        assert _in_validation([identifier], high).all()


def test_el_reparto_se_acerca_a_la_fraccion() -> None:
    ids = [document_id(Document(str(n), "")) for n in range(4000)]
    assert 0.08 < _in_validation(ids, 0.1).mean() < 0.12


def _in_validation(identifiers: list[str], fraction: float) -> npt.NDArray[np.bool_]:
    """A qué parte van documentos sin parientes ni repetidos."""
    halves = [[int(text[:16], 16), int(text[16:], 16)] for text in identifiers]
    each = np.arange(len(identifiers))
    alone = Resolution(np.full(len(each), KEPT, np.uint8), each, each)
    data = make_config({"data.val_fraction": fraction}).data
    return decide_fates(
        np.array(halves, np.uint64), np.zeros(len(each), int), alone, data
    ).validation
