"""El lector de YAML: valores de YAML 1.2, ida y vuelta con DVC y errores en una frase."""

import io
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from enlace.config.yaml_io import dump_yaml, parse_yaml, read_yaml
from enlace.errors import ConfigError

TRICKY = ["1e5", "No", "010", "08", "1:30", "2024-01-01", "0o7", "~", "null", "1_000", "=", "<<"]
TRICKY += ["", "1e-05", "off", "y", "True", ".inf", "1_0.5", "- x", "a: b", "#x", " a ", "a\nb"]
TRICKY += ["\u2028", "\ufeff", "\x00", "\t", "'", '"', "—Buenos días —dijo", "palabra " * 40]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("3.0e-5", 3e-5),
        ("1e-05", 1e-5),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-2.", -2.0),
        ("1_000", 1000),
        ("010", 10),
        ("08", 8),
        ("0x1F", 31),
        ("0o17", 15),
        ("1:30", "1:30"),
        ("No", "No"),
        ("on", "on"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("'3e-4'", "3e-4"),
        (".inf", float("inf")),
    ],
)
def test_los_escalares_son_los_de_yaml_1_2(text: str, value: Any) -> None:
    read = parse_yaml(f"a: {text}", "x")["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", TRICKY)
def test_un_texto_con_cara_de_otra_cosa_sobrevive_a_dvc(text: str) -> None:
    # DVC reescribe params.yaml con ruamel.yaml cuando recibe `exp run -S`.
    ours = dump_yaml({"a": [text]})
    assert YAML(typ="safe", pure=True).load(ours) == {"a": [text]}
    theirs = io.StringIO()
    round_trip = YAML(typ="rt")
    round_trip.dump(round_trip.load(ours), theirs)
    assert parse_yaml(theirs.getvalue(), "x") == {"a": [text]}


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False) | st.integers()))
def test_escribir_y_leer_devuelve_lo_mismo(value: dict[str, Any]) -> None:
    assert parse_yaml(dump_yaml(value), "x") == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2", "f.yaml, línea 2: la clave «a» está repetida; deja solo una"),
        ("a:\n  b: 1\n  b: 2", "f.yaml, línea 3: la clave «b» está repetida; deja solo una"),
        ("1: 2", "f.yaml, línea 1: la clave «1» no es texto; ponla entre comillas o corrígela"),
        ("? [a]\n: 2", "f.yaml, línea 1: la clave compuesta no es texto"),
        ("true: 1", "f.yaml, línea 1: la clave «true» no es texto"),
        ("a: !!python/object:os.system x", "python/object:os.system; quítala"),
        ("a: !!python/object/apply:os.system [ls]", "usa la etiqueta tag:yaml.org"),
        ("a: !!int foo", "usa la etiqueta"),
        ("a: &x 3\nb: *x", "f.yaml, línea 1: usa un ancla o un alias (& o *); repite los valores"),
        ("a: &x [*x]", "usa un ancla o un alias"),
        ("a:\n\tb: 1", "f.yaml, línea 2: «b: 1» no es YAML válido; sangra con espacios"),
        ("a: b: c", "f.yaml, línea 1: «a: b: c» no es YAML válido; revisa la sangría"),
        ("a: [1, 2", "no es YAML válido"),
        ("a: 'x", "no es YAML válido"),
        ("a: 1\n---\nb: 2", "deja un solo documento"),
        ("a: 1\nb: \x00", "f.yaml, línea 2: hay un carácter de control (U+0000)"),
        ("a: " + "9" * 5000, "f.yaml, línea 1: el número tiene demasiadas cifras; acórtalo"),
        ("[" * 5000, "pasa de 32 niveles"),
    ],
)
def test_un_yaml_malo_da_una_frase_con_fichero_y_linea(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    message = str(caught.value)
    assert expected in message
    assert message.startswith("f.yaml")
    assert "\n" not in message
    assert "expected" not in message
    assert "found" not in message


def test_las_mil_millones_de_risas_no_agotan_la_memoria() -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 30)]
    start = time.monotonic()
    with pytest.raises(ConfigError, match="ancla"):
        parse_yaml("l0: &l0 [risa]\n" + "\n".join(levels), "x")
    # No mide rapidez: expandir las referencias (10^29) no terminaría nunca.
    assert time.monotonic() - start < 60


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        alphabet=st.sampled_from("ab:-?[]{}&*!|>'\"%@`#,\n\t 01.e_~<=\\x\x00\x85é"), max_size=40
    )
)
def test_ningun_texto_provoca_otra_cosa_que_config_error(text: str) -> None:
    try:
        parse_yaml(text, "f.yaml")
    except ConfigError as error:
        assert str(error).startswith("f.yaml")  # noqa: PT017 - solo algunos textos fallan


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "está vacío; debe contener un mapa"),
        (b"# nada\n", "está vacío"),
        (b"- a\n- b\n", "contiene una lista; debe contener un mapa"),
        (b"hola", "contiene otra cosa; debe contener un mapa"),
        ("a: caf\xe9".encode("latin-1"), "no es texto UTF-8 (byte 6); guárdalo como UTF-8"),
        (bytes(range(256)), "no es texto UTF-8"),
        (b"\x7fELF\x01\x01\x00", "carácter de control"),
    ],
)
def test_un_fichero_que_no_es_un_mapa_se_explica(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "malo.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"malo\.yaml") as caught:
        read_yaml(path)
    assert expected in str(caught.value)


def test_un_fichero_con_bom_y_crlf_se_lee(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: dos\r\n")
    assert read_yaml(path) == {"a": 1, "b": "dos"}


def test_carpeta_ausencia_y_ruta_imposible_se_explican(tmp_path: Path) -> None:
    cases = {
        tmp_path: "es una carpeta; indica un fichero YAML",
        tmp_path / "no.yaml": "no existe; revisa la ruta",
        tmp_path / ("x" * 300): "no se puede leer; revisa la ruta",
        Path("con\0nulo"): "no se puede leer; revisa la ruta",
    }
    for path, expected in cases.items():
        with pytest.raises(ConfigError) as caught:
            read_yaml(path)
        assert str(caught.value) == f"{path}: {expected}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root lee cualquier fichero")
def test_un_fichero_sin_permiso_se_explica(tmp_path: Path) -> None:
    path = tmp_path / "cerrado.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    with pytest.raises(ConfigError, match="permiso"):
        read_yaml(path)


def test_una_tuberia_se_niega_sin_esperar(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="es una tubería"):
        read_yaml(path)
