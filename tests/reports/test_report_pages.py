import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from enlace.errors import DataError
from enlace.reports import html, markdown
from enlace.reports.curve import Curve, condense, curve_svg, read_curve

_VOID = {"meta", "img", "br"}


class _Balance(HTMLParser):
    """Comprueba que cada etiqueta se cierra, en orden, y guarda el texto visible."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(page: str) -> _Balance:
    parser = _Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_un_texto_hostil_no_se_convierte_en_etiquetas() -> None:
    attack = "</title></style><script>alert('x')</script><img src=x onerror=\"y\"> & \0"
    page = html.page(attack, attack, [(attack, html.element("p", attack))], attack)
    parsed = parse(page)
    assert "script" not in parsed.seen
    assert "img" not in parsed.seen
    assert parsed.text.count("<script>alert('x')</script>") == 6
    assert "␀" in parsed.text


def test_los_atributos_tambien_se_escapan() -> None:
    figure = html.svg_figure(b"<svg/>", '"><script>', "pie <b>")
    parsed = parse(figure)
    assert parsed.seen == ["figure", "img", "figcaption"]


def test_lo_que_ya_es_html_no_se_escapa_dos_veces() -> None:
    assert html.element("p", html.element("b", "a<b")) == "<p><b>a&lt;b</b></p>"
    assert html.join(["<", html.Html("<i></i>")]) == "&lt;<i></i>"


def test_las_celdas_de_markdown_no_rompen_la_tabla() -> None:
    lines = markdown.table(["a", "b"], [["x|y", "dos\nlíneas"]]).splitlines()
    assert lines == ["| a | b |", "| --- | --- |", "| x\\|y | dos líneas |"]


def test_el_bloque_literal_sobrevive_a_los_acentos_graves() -> None:
    block = markdown.code_block("antes ``` y ````` después")
    fence = block.splitlines()[0].removesuffix("text")
    assert fence == "`" * 6
    assert block.splitlines()[-1] == fence


def test_condensar_conserva_la_media_y_los_extremos_del_reparto() -> None:
    points = [(step, float(step % 7)) for step in range(1000)]
    shown = condense(points, 10)
    assert len(shown) == 10
    assert [step for step, _ in shown] == [49.5 + 100 * i for i in range(10)]
    mean = sum(value for _, value in points) / len(points)
    assert sum(value for _, value in shown) / 10 == pytest.approx(mean, abs=1e-12)


def test_condensar_descarta_lo_que_no_es_finito() -> None:
    nan = float("nan")
    assert condense([(1, nan), (2, 3.0), (3, float("inf"))]) == [(2.0, 3.0)]


def test_la_figura_tiene_bytes_estables_y_cambia_con_los_puntos() -> None:
    curve = Curve(((1, 5.0), (2, 4.0)), ((2, 4.5),))
    assert curve_svg(curve) == curve_svg(curve)
    assert curve_svg(curve) != curve_svg(Curve(((1, 5.0), (2, 3.0)), ((2, 4.5),)))
    assert not re.search(rb"<(image|script)", curve_svg(curve))


def test_la_tabla_del_entrenamiento_se_lee_con_huecos(tmp_path: Path) -> None:
    table = tmp_path / "train.tsv"
    table.write_text("step\tloss\tlr\tval_loss\n1\t5.5\t0.1\t\n2\tnan\t0.1\t5.25\n", "utf-8")
    curve = read_curve(table)
    assert curve.train[0] == (1, 5.5)
    assert curve.validation == ((2, 5.25),)


@pytest.mark.parametrize("content", ["paso\tpérdida\n1\t2\n", "step\tloss\tval_loss\n1\tx\t\n"])
def test_una_tabla_ajena_se_rechaza_con_su_ruta(tmp_path: Path, content: str) -> None:
    table = tmp_path / "train.tsv"
    table.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"train\.tsv: no es la tabla de un entrenamiento"):
        read_curve(table)
