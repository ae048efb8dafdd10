"""Los errores que ve el usuario: una línea, su código y ninguna traza, en cualquier salida."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from enlace.errors import _MACHINE_FAULTS, DataError, UnfinishedError, user_errors
from enlace.files import write_text


def run(body: str, output: str = "", **environment: str) -> tuple[int, str, str]:
    """Ejecuta `body` dentro de `user_errors` en otro proceso, con su salida en `output`."""
    code = f"import errno, os\nfrom enlace.errors import *\nwith user_errors():\n    {body}\n"
    command = f'exec "$0" -c "$1" {output}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, code],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


@pytest.mark.parametrize(
    ("error", "code"), [(DataError("aquí"), 2), (UnfinishedError("aquí", 143), 143)]
)
def test_un_error_de_usuario_es_una_linea_y_su_codigo(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped, user_errors():
        raise error
    assert stopped.value.code == code
    assert capsys.readouterr().err == "enlace: aquí\n"


@pytest.mark.parametrize("number", _MACHINE_FAULTS)
def test_un_fallo_de_la_maquina_es_una_linea_con_sitio_y_remedio(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped, user_errors():
        raise OSError(number, os.strerror(number), "runs/x")
    assert stopped.value.code == 1
    line = capsys.readouterr().err
    assert line.startswith("enlace: runs/x: ")
    assert line.count("\n") == 1
    assert "; " in line


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


def _under_a_file(path: Path) -> Path:
    path.touch()
    return path / "dentro"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_folder, "hay una carpeta donde debería haber un fichero"),
        (_loop, "es un enlace que vuelve a sí mismo"),
        (_under_a_file, "hay un fichero donde debería haber una carpeta"),
    ],
)
def test_lo_que_no_es_lo_que_deberia_se_dice_con_su_ruta(
    spoil: Callable[[Path], Path], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spoil(tmp_path / "sello.json")
    with pytest.raises(SystemExit), user_errors():
        path.read_text("utf-8")
    assert capsys.readouterr().err.startswith(f"enlace: {path}: {said}; ")


def test_de_un_renombrado_se_nombra_el_destino(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sello.json").mkdir()
    with pytest.raises(SystemExit), user_errors():
        write_text(tmp_path / "sello.json", "x")
    assert capsys.readouterr().err.startswith(f"enlace: {tmp_path / 'sello.json'}: hay una carpeta")


def test_otro_error_del_sistema_conserva_su_traza() -> None:
    with pytest.raises(FileNotFoundError), user_errors():
        raise FileNotFoundError(errno.ENOENT, "no está", "x")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_una_terminal_que_no_es_utf8_no_detiene_nada(encoding: str) -> None:
    code, out, err = run("print('a → b'.encode().decode())", PYTHONIOENCODING=encoding)
    assert (code, err) == (0, "")
    assert out in ("a → b\n", "a \\u2192 b\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="hace falta /dev/full")
@pytest.mark.parametrize("body", ["print('a')", "print('a', flush=True)", "print('a' * 100000)"])
def test_una_salida_llena_es_una_linea(body: str) -> None:
    code, _, err = run(body, ">/dev/full")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("enlace: no queda sitio")


def test_una_salida_llena_no_tapa_el_error_de_usuario() -> None:
    code, _, err = run("print('a'); raise DataError('aquí')", ">/dev/full", PYTHONUNBUFFERED="")
    assert (code, err) == (2, "enlace: aquí\n")


def test_con_la_salida_cerrada_no_pasa_nada() -> None:
    assert run("print('a')", ">&-") == (0, "", "")
    code, _, err = run("raise DataError('aquí')", ">&-")
    assert (code, err) == (2, "enlace: aquí\n")


def test_una_tuberia_cerrada_es_una_linea() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "from enlace.errors import user_errors\nwith user_errors():\n    print('a')\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("enlace: nadie lee ya la salida")
    assert done.stderr.count(b"\n") == 1
