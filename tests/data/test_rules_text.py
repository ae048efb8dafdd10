"""Reglas que cambian o cortan texto: mojibake, HTML, espacios, navegación y datos personales."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace.data.rules import boilerplate, identifiers, markup, mojibake, personal
from enlace.data.rules.characters import normalize
from enlace.data.rules.phrases import UNMISTAKABLE
from tests.support import make_config

_CORRECT = (
    "«¿Qué?», dijo la niña: “pingüino”, ‘año’, l’Hospitalet — sí – no… œuvre ﬁn Ａ１ ª º € £",
    "ESTÁ» Y CAFÉ» À QUOI? SÃO PAULO; AÑO… Él dijo «está…» y calló. ÁÉÍ°",
    "El signo × y el ÷; 20 °C; 1.º; Nº 3; ½ taza; Ø; ß; Å; þ; ¬p ∧ q; √2; √9 = 3",
)
_cut = boilerplate.boilerplate_cutter(160)
_mask = personal._masker(make_config().data.rules.personal_data)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("text", ["canción, año y ¿qué? ¡así!", "pingüino — él «sí»", "Él, Ñandú"])
def test_el_mojibake_se_deshace(text: str, encoding: str) -> None:
    spoiled = text.encode("utf-8").decode(encoding)
    assert spoiled != text
    assert mojibake.repair(spoiled) == text
    twice = spoiled.encode("utf-8").decode("latin-1")
    assert mojibake.repair(twice) == text


def test_un_parrafo_estropeado_no_arrastra_a_los_buenos() -> None:
    good = "El año pasado, «la canción» sonó aquí…"
    text = f"{good}\nLa canciÃ³n del aÃ±o\n{good}"
    assert mojibake.repair(text) == f"{good}\nLa canción del año\n{good}"


@pytest.mark.parametrize("text", _CORRECT)
def test_el_texto_correcto_no_cambia(text: str) -> None:
    assert mojibake.repair(text) == text
    assert mojibake.repair(text * 3) == text * 3


@given(st.text(st.sampled_from("aeñáéíóúü ¿?¡!«»“”’…—–ÑÁÉÍÓÚ,.ºª\n"), max_size=60))
def test_nada_escrito_con_las_letras_del_espanol_cambia_dos_veces(text: str) -> None:
    once = mojibake.repair(text)
    assert mojibake.repair(once) == once


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("uno<br>dos<br/>tres", "uno\ndos\ntres"),
        ("<p>Hola, <b>mundo</b></p>", "\nHola, mundo\n"),
        ('un <a href="x.html" class="y">enlace</a>', "un enlace"),
        ("caf&eacute; &amp;nbsp;y t&#233;", "café \u00a0y té"),
        ("&amp;amp;lt;b&amp;amp;gt;sí&lt;/b&gt;", "sí"),
        ("antes<!-- nota --><script>var a;</script>después", "antesdespués"),
        ("la etiqueta <b> pone negrita", "la etiqueta <b> pone negrita"),
        ("si a<b y c>d, AT&T; R&D", "si a<b y c>d, AT&T; R&D"),
        ("x<b\n\ny=1>z", "x<b\n\ny=1>z"),
        ("<|endoftext|> vector<int> <usuario>", "<|endoftext|> vector<int> <usuario>"),
        ("<!-- sin cerrar", "<!-- sin cerrar"),
    ],
)
def test_etiquetas_y_entidades(dirty: str, clean: str) -> None:
    assert markup.strip_markup(dirty) == clean
    assert markup.strip_markup(clean) == clean


def test_espacios_finales_y_lineas_en_blanco() -> None:
    assert normalize("uno  \n\n\n\n\n\tdos\u00a0\n") == "uno\n\n\n\tdos"
    assert normalize("uno\n\n\ndos") == "uno\n\n\ndos"


@pytest.mark.parametrize(
    "line",
    [
        "Compartir en Facebook",
        "Compartir esta noticia en Twitter, Facebook y WhatsApp",
        "Síguenos en Instagram",
        "© 2019 Diario de la Tarde. Todos los derechos reservados.",
        "Copyright 2020 Editorial del Norte",
        "Utilizamos cookies propias y de terceros para mejorar nuestros servicios.",
        "Aceptar todas las cookies",
        "Leer más »",
        "Seguir leyendo…",
        "Saltar al contenido principal",
        "Inicio | Noticias | Deportes | Contacto",
        "Inicio > Cultura > Libros",
        "Suscríbete a nuestro boletín semanal",
        "Deja un comentario",
        "Su dirección de correo electrónico no será publicada.",
        "1.234 visitas | 56 comentarios",
        "« Anterior 1 2 3 Siguiente »",
        "También te puede interesar:",
    ],
)
def test_las_lineas_de_navegacion_se_cortan(line: str) -> None:
    assert _cut(f"Un párrafo.\n{line}\nOtro párrafo.") == "Un párrafo.\nOtro párrafo."


@pytest.mark.parametrize(
    "text",
    [
        "—Compartir en Facebook —dijo ella.\n¿Leer más?\n«Todos los derechos reservados»",
        "Inicio\n\nLa función empieza a las ocho.\n\nContacto\n\nCon la mano en la pared.",
        "Compartir el pan y la sal\nes de amigos;\nseguir leyendo la carta\nes cosa triste.",
        "Leer más libros en verano es lo que recomienda la maestra.",
        "Las cookies de chocolate se hornean doce minutos.",
        "Siguiente paso: amasar.\nCerrar la olla.\nGuardar en frío.",
        "3 respuestas posibles había.\n2 + 2 = 4",
    ],
)
def test_dialogos_versos_y_titulos_se_quedan(text: str) -> None:
    assert _cut(text) == text


def test_un_menu_vertical_se_corta_y_el_limite_de_longitud_manda() -> None:
    assert _cut("Inicio\nNoticias\n\nDeportes\nUn párrafo.") == "Un párrafo."
    assert _cut("Uno.\n\nLeer más\n\nDos.\n\nLeer más\n\nLeer más") == "Uno.\n\nDos."
    long = "Todos los derechos reservados. " + "x" * 200
    assert _cut(long) == long


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        (
            "Escribe a ana.perez+x@correo.example.es, ¿vale?",
            "Escribe a [correo electrónico], ¿vale?",
        ),
        (
            "DNI 12345678Z, NIE X1234567L",
            "DNI [documento de identidad], NIE [documento de identidad]",
        ),
        ("IBAN ES91 2100 0418 4502 0005 1332.", "IBAN [cuenta bancaria]."),
        ("CURP BOXW310820HNERXN09", "CURP [documento de identidad]"),
        ("RFC GODE561231GR8", "RFC [documento de identidad]"),
        ("tarjeta 4111 1111 1111 1111", "tarjeta [tarjeta]"),
        ("móvil 612345678 o 612 34 56 78", "móvil [teléfono] o [teléfono]"),
        ("+34 612 345 678; +52 55 1234 5678", "[teléfono]; [teléfono]"),
        ("+54 9 11 4123-4567; +57 300 123 4567", "[teléfono]; [teléfono]"),
        ("+56 9 1234 5678; +51 987 654 321", "[teléfono]; [teléfono]"),
        ("(011) 4123-4567; 55 1234 5678", "[teléfono]; [teléfono]"),
        ("Teléfono de contacto: 987654321", "Teléfono de contacto: [teléfono]"),
    ],
)
def test_los_datos_personales_se_tapan(dirty: str, clean: str) -> None:
    assert _mask(dirty) == clean
    assert _mask(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "Ley 39/2015, de 1 de octubre; Real Decreto 1553/2005; artículo 14.2",
        "Marcel Proust (1871-1922); Torricelli (1608 - 1647); curso 2019-2020",
        "Son 1.234.567 euros, 912 345 678 habitantes y 3,1415926535",
        "ISBN 978-84-376-0494-7, ISBN 84-376-0494-7, ISSN 1234-5678",
        "A las 12:30 del 03/04/1987, kilómetro 123.456.789",
        "12345678A no tiene buena letra; 4111 1111 1111 1112 no cumple Luhn",
        "ES92 2100 0418 4502 0005 1332 tiene mal el control",
        "una @ suelta, @usuario y a@b",
    ],
)
def test_lo_que_no_es_un_dato_personal_se_queda(text: str) -> None:
    assert _mask(text) == text


def _patterns() -> list[re.Pattern[str]]:
    """Las expresiones que se aplican a textos sin límite de longitud."""
    found = [pattern for pattern, _, _ in identifiers.IDENTIFIERS]
    for module in (markup, mojibake, personal):
        found += [item for item in vars(module).values() if isinstance(item, re.Pattern)]
    return found


def _steps(text: str, pattern: re.Pattern[str]) -> int:
    """Caracteres que quedan por mirar cuando acaba: sirve de prueba de que acaba."""
    return len(text) - sum(len(match[0]) for match in pattern.finditer(text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["a", "1", "1 ", "<a ", "<!--", "&amp;", "a@", "a.", "(1", "Ã", "ES12 AAAA", "+1-"]
)
def test_un_texto_hostil_no_atasca_ninguna_expresion(unit: str) -> None:
    # Con una expresión exponencial no acabaría nunca y con una cuadrática, en muchos minutos.
    text = unit * (200_000 // len(unit))
    for pattern in _patterns():
        assert 0 <= _steps(text, pattern) <= len(text)
    assert len(markup.strip_markup(text)) <= len(text)
    assert _cut(text) == text


@pytest.mark.parametrize("unit", ["1", "1 ", " 1 visitas", " y facebook", "x ", "anterior 1", "|"])
def test_la_linea_mas_larga_que_se_mira_no_atasca_las_frases(unit: str) -> None:
    for start in ("", "anterior ", "compartir en x", "1 visitas"):
        assert UNMISTAKABLE.fullmatch((start + unit * 160)[:159] + "\x00") is None
