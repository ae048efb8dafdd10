"""La página: en español, sin nada de fuera, con nombre en cada mando y sin HTML del modelo."""

import asyncio
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from enlace.serve.page import HEADERS
from tests.serve.support_serve import FakeEngine, running

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "enlace/serve/page"
FILES = {file.name: file.read_text("utf-8") for file in PAGE.iterdir()}
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))
_NAMESPACE = "http://www.w3.org/2000/svg"
_VOID = {"meta", "link", "img", "input", "path", "circle", "rect"}


class Elements(HTMLParser):
    """Los elementos de la página, con sus atributos y su texto."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words: list[str] = []
        self.all.append((tag, dict(attrs), words))
        if tag not in _VOID:
            self._open.append(words)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for words in self._open:
            words.append(data)

    def named(self, *tags: str) -> list[tuple[str, dict[str, str | None], list[str]]]:
        return [each for each in self.all if each[0] in tags]


HTML = Elements(FILES["index.html"])
IDS = [attributes["id"] for _, attributes, _ in HTML.all if "id" in attributes]


def test_la_pagina_esta_en_espanol_y_no_trae_nada_de_fuera() -> None:
    ((_, attributes, _),) = HTML.named("html")
    assert attributes["lang"] == "es"
    for name, text in FILES.items():
        assert re.findall(r"\w+://[^\s\"')]+", text) in ([], [_NAMESPACE]), name
        assert "//" not in re.findall(r"url\(([^)]*)\)|@import", text), name
    sources = [attributes.get("src") or attributes.get("href") for _, attributes, _ in HTML.all]
    local = {source for source in sources if source and not source.startswith("#")}
    assert local <= set(FILES)


def test_todo_mando_tiene_nombre_y_lo_que_lo_explica_existe() -> None:
    labels = {attributes["for"] for _, attributes, _ in HTML.named("label")}
    for tag, attributes, words in HTML.named("button", "input", "textarea"):
        named = "".join(words).strip() if tag == "button" else attributes["id"] in labels
        assert named, attributes
    for _, attributes, _ in HTML.all:
        for key in ("for", "aria-describedby", "aria-labelledby"):
            assert attributes.get(key) is None or attributes[key] in IDS
    assert len(IDS) == len(set(IDS))
    assert not [each for each in HTML.all if int(each[1].get("tabindex") or 0) > 0]


def test_lo_que_cambia_se_anuncia_y_hay_un_atajo_al_contenido() -> None:
    roles = {
        attributes.get("role"): attributes["id"]
        for _, attributes, _ in HTML.all
        if "id" in attributes
    }
    assert roles["alert"] == "problem"
    assert roles["status"] == "status"
    links = [attributes["href"] for _, attributes, _ in HTML.named("a")]
    assert links == ["#content"]
    assert "completa texto; todavía no conversa" in FILES["index.html"]


def test_el_estilo_atiende_a_quien_lo_pide() -> None:
    style = FILES["style.css"]
    for wanted in (
        "prefers-color-scheme: dark",
        "prefers-reduced-motion: reduce",
        "forced-colors: active",
        ":focus-visible",
        "max-width",
    ):
        assert wanted in style


def _luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    # https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["claro", "oscuro"])
@pytest.mark.parametrize(
    ("front", "back", "least"),
    [
        ("ink", "ground", 7),
        ("ink", "surface", 7),
        ("ink", "tint", 7),
        ("soft", "ground", 4.5),
        ("soft", "surface", 4.5),
        ("soft", "raised", 4.5),
        ("on-accent", "accent", 4.5),
        ("bad", "bad-ground", 4.5),
        ("accent", "ground", 3),
        ("field", "surface", 3),
    ],
)
def test_los_colores_se_distinguen(scheme: int, front: str, back: str, least: float) -> None:
    # Los mínimos de contraste de WCAG 2.2: 4,5 para el texto y 3 para los bordes de los mandos.
    def color(name: str) -> float:
        return _luminance(re.findall(rf"--{name}: (#[0-9a-f]{{6}});", FILES["style.css"])[scheme])

    dark, light = sorted((color(front), color(back)))
    assert (light + 0.05) / (dark + 0.05) >= least


@pytest.mark.parametrize("name", SCRIPTS)
def test_el_texto_del_modelo_nunca_es_html(name: str) -> None:
    script = FILES[name]
    for danger in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ):
        assert danger not in script
    wanted = re.findall(r'element\("([\w-]+)"\)', script)
    assert set(wanted) <= set(IDS)


def test_se_sirve_entera_y_con_sus_cabeceras() -> None:
    async def run() -> None:
        async with running(FakeEngine()) as server:
            for name, text in FILES.items():
                path = "/" if name == "index.html" else f"/{name}"
                async with server.client.get(server.url + path) as response:
                    assert (response.status, await response.text()) == (200, text)
                    for header, value in HEADERS.items():
                        assert response.headers[header] == value

    asyncio.run(run())


def test_las_cabeceras_no_dejan_traer_ni_ejecutar_nada_ajeno() -> None:
    policy = dict(
        part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {value for name, value in policy.items() if name.endswith("-src")} == {
        "'none'",
        "'self'",
    }
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    # Sin estilos ni programas dentro del HTML, que la política no dejaría usar.
    assert not re.search(r"<style|style=|\son\w+=|<script(?! src)", FILES["index.html"])


def test_la_pagina_viaja_con_el_paquete() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["setuptools"]["package-data"] == {"enlace.serve": ["page/*"]}
    assert all(file.is_file() for file in PAGE.iterdir())
