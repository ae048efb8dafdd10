"""La tabla de reglas: orden, cuentas, conversaciones y lo que cada interruptor apaga."""

from pathlib import Path
from typing import Any

import pytest

from enlace.config.load import load_config
from enlace.config.schema import DataConfig
from enlace.data.documents import Document, Turn, conversation
from enlace.data.rules.events import Event
from enlace.data.rules.table import RuleTable
from tests.support import make_config

_ROOT = Path(__file__).parents[2]
_NORMALIZED = {
    f"data.rules.{name}": True
    for name in ("line_ends", "control", "invisible", "nfc", "whitespace")
}
_SPANISH = (
    "La abuela abrió la ventana, miró el huerto y dijo que las lechugas ya estaban listas para "
    "la ensalada del domingo, aunque hubiera que compartirlas con los caracoles."
)
_ENGLISH = (
    "The children walked along the river until they found the old bridge, and nobody wanted to "
    "be the first one to cross it while the wind was blowing so hard."
)


def _data(changes: dict[str, Any]) -> DataConfig:
    return make_config(changes).data


def _table(changes: dict[str, Any]) -> RuleTable:
    return RuleTable(_data({"data.rules.length.enabled": False} | changes))


def test_los_sucesos_dicen_regla_bytes_y_ejemplo() -> None:
    table = _table(_NORMALIZED | {"data.rules.length.enabled": True})
    cleaned = table.clean(Document("hola \x00mundo", "a.txt"))
    assert cleaned.document == Document("hola mundo", "a.txt")
    assert cleaned.events == (Event("control", "changed", 1, r"a.txt: hola \x00mundo"),)
    assert table.clean(Document(" \n", "b.txt")).document is None


def test_un_rechazo_corta_la_tabla_y_cuenta_lo_que_llego_a_la_regla() -> None:
    table = _table(
        _NORMALIZED | {"data.rules.length.enabled": True, "data.rules.length.min_chars": 9}
    )
    cleaned = table.clean(Document("\ufeffniño", "a.txt"))
    assert cleaned.document is None
    assert [item[:3] for item in cleaned.events] == [
        ("invisible", "changed", 3),
        ("length", "dropped", 5),
    ]
    assert cleaned.events[1].example == "a.txt: 4 caracteres, menos que 9"


def test_los_ejemplos_caben_en_su_sitio() -> None:
    table = _table(_NORMALIZED)
    (only,) = table.clean(Document("\x00" * 900, "x" * 300)).events[:1]
    assert len(only.example) == 200


@pytest.mark.parametrize("name", ["html", "mojibake", "line_ends", "invisible", "whitespace"])
def test_apagada_una_regla_no_toca_nada(name: str) -> None:
    dirty = "<b>canciÃ³n</b>\r\nuno\u200b \n\n\n\n\ndos"
    on, off = _table({f"data.rules.{name}": True}), _table({})
    document = Document(dirty, "a")
    assert off.clean(document).document == document
    assert on.clean(document).document != document
    assert [item.rule for item in on.clean(document).events] == [name]


def test_names_lista_las_reglas_encendidas_y_lo_que_pueden_hacer() -> None:
    assert _table({}).names == (("empty", "dropped"), ("empty_turn", "dropped"))
    everything = dict.fromkeys(
        [f"data.rules.{name}.enabled" for name in ("boilerplate", "language", "quality")], True
    )
    names = _table(everything | {"data.rules.personal_data.action": "mask"}).names
    assert names == (
        ("boilerplate", "cut"),
        ("language", "cut"),
        ("language", "dropped"),
        ("empty", "dropped"),
        ("empty_turn", "dropped"),
        ("quality", "dropped"),
        ("personal_data", "changed"),
    )


def test_una_conversacion_se_limpia_turno_a_turno() -> None:
    turns = (Turn("user", " hola\r\n"), Turn("assistant", "<p>sí, ana@casa.es</p>"))
    table = _table(
        _NORMALIZED | {"data.rules.html": True, "data.rules.personal_data.action": "mask"}
    )
    cleaned = table.clean(conversation(turns, "a:1")).document
    assert cleaned is not None
    assert cleaned.turns == (Turn("user", "hola"), Turn("assistant", "sí, [correo electrónico]"))
    assert cleaned.text == "hola\nsí, [correo electrónico]"
    emptied = table.clean(conversation((Turn("user", "hola"), Turn("assistant", "\u200b")), "b"))
    assert emptied.document is None
    assert emptied.events[-1].example == "b: el turno 2 (assistant) está vacío"


def test_la_lengua_de_una_conversacion_se_juzga_entera() -> None:
    table = _table({"data.rules.language.enabled": True})
    mixed = conversation(
        (Turn("user", f"Traduce: {_SPANISH}"), Turn("assistant", _SPANISH[:-1] + ".\n" + _ENGLISH)),
        "a",
    )
    assert table.clean(mixed).document == mixed
    foreign = conversation((Turn("user", _ENGLISH), Turn("assistant", _ENGLISH + " Yes.")), "b")
    cleaned = table.clean(foreign)
    assert cleaned.document is None
    assert cleaned.events[-1].kind == "dropped"


def test_no_depende_del_orden_ni_guarda_nada() -> None:
    documents = [Document(text, str(n)) for n, text in enumerate([_SPANISH, _ENGLISH, "x", ""])]
    table, fresh = _table({"data.rules.language.enabled": True}), RuleTable
    forwards = [table.clean(document) for document in documents]
    backwards = [table.clean(document) for document in reversed(documents)]
    assert forwards == backwards[::-1]
    data = _data({"data.rules.length.enabled": False, "data.rules.language.enabled": True})
    assert [fresh(data).clean(document) for document in documents] == forwards


@pytest.mark.parametrize("run", ["demo", "smoke"])
def test_las_reglas_de_serie_dejan_la_muestra_casi_como_esta(run: str) -> None:
    data = load_config(_ROOT / "configs" / "runs" / f"{run}.yaml").data
    table = RuleTable(data)
    files = sorted((_ROOT / data.source).rglob("*.txt"))
    documents = [Document(path.read_text(encoding="utf-8"), path.name) for path in files]
    cleaned = [table.clean(document) for document in documents]
    assert len(documents) > 100
    assert [event for item in cleaned for event in item.events if event.kind != "changed"] == []
    assert all(table.clean(item.document).events == () for item in cleaned if item.document)
    kept = sum(len(item.document.text) for item in cleaned if item.document)
    assert kept > 0.999 * sum(len(document.text) for document in documents)
