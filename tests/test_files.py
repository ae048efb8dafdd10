"""Escrituras enteras: lo anterior o lo nuevo, nunca una mezcla, también con un kill -9."""

import hashlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace import files
from enlace.files import (
    TEMPORARY_PREFIX,
    atomic_dir,
    atomic_file,
    canonical_json,
    remove_temporaries,
    sha256_file,
    sha256_json,
    write_bytes,
    write_json,
    write_text,
)

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=["intercambio", "dos renombrados"])
def any_filesystem(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Con renameat2 y como en los sistemas de ficheros que no saben intercambiar."""
    if request.param == "dos renombrados":
        monkeypatch.setattr(files, "_exchange", lambda first, second: False)


@pytest.fixture
def umask() -> Iterator[int]:
    previous = os.umask(0o027)
    yield 0o027
    os.umask(previous)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _write_folder(path: Path, content: str, names: tuple[str, ...] = ("a", "b", "c/d")) -> None:
    with atomic_dir(path) as temporary:
        for name in names:
            file = temporary / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)


# ---------------------------------------------------------------- ficheros


def test_un_fichero_se_crea_con_sus_carpetas_y_se_sustituye(tmp_path: Path) -> None:
    path = tmp_path / "una/dos/f.txt"
    write_text(path, "año")
    assert path.read_bytes() == "año".encode()
    write_bytes(path, b"\x00nuevo")
    assert path.read_bytes() == b"\x00nuevo"
    assert _names(path.parent) == ["f.txt"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError])
def test_un_fallo_deja_el_fichero_anterior_y_ningun_temporal(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "f.txt"
    write_text(path, "viejo")
    with pytest.raises(failure), atomic_file(path) as temporary:  # noqa: PT012
        temporary.write_text("a medias")
        raise failure
    assert path.read_text() == "viejo"
    assert _names(tmp_path) == ["f.txt"]


def test_un_destino_imposible_no_deja_temporales(tmp_path: Path) -> None:
    (tmp_path / "carpeta").mkdir()
    with pytest.raises(OSError, match="carpeta"):
        write_text(tmp_path / "carpeta", "x")
    assert _names(tmp_path) == ["carpeta"]


def test_el_bloque_puede_renombrar_su_propio_temporal(tmp_path: Path) -> None:
    # safetensors y pyarrow pueden escribir aparte y renombrar encima.
    with atomic_file(tmp_path / "f.txt") as temporary:
        other = tmp_path / "aparte"
        other.write_text("nuevo")
        os.replace(other, temporary)
    assert (tmp_path / "f.txt").read_text() == "nuevo"


def test_un_enlace_se_sustituye_sin_tocar_lo_enlazado(tmp_path: Path) -> None:
    # Los outs de DVC pueden ser enlaces a su caché: escribir a través la corrompería.
    cached, link = tmp_path / "cache", tmp_path / "out"
    cached.write_text("viejo")
    link.symlink_to(cached)
    write_text(link, "nuevo")
    assert cached.read_text() == "viejo"
    assert link.read_text() == "nuevo"
    assert not link.is_symlink()


def test_los_permisos_siguen_la_umask(tmp_path: Path, umask: int) -> None:
    write_text(tmp_path / "f.txt", "x")
    _write_folder(tmp_path / "carpeta", "x")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes[tmp_path / "f.txt"] == 0o666 & ~umask
    assert modes[tmp_path / "carpeta"] == 0o777 & ~umask
    assert modes[tmp_path / "carpeta/a"] == 0o666 & ~umask


def test_la_umask_nunca_se_toca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # os.umask es del proceso entero: otro hilo crearía ficheros abiertos a todos.
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("ha llamado a os.umask"))
    write_text(tmp_path / "f.txt", "x")
    _write_folder(tmp_path / "carpeta", "x")


def test_dos_escrituras_a_la_vez_del_mismo_fichero_no_se_mezclan(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    with atomic_file(path) as one, atomic_file(path) as two:
        assert one != two
        one.write_text("uno")
        two.write_text("dos")
    assert path.read_text() == "uno"
    assert _names(tmp_path) == ["f.txt"]


# ---------------------------------------------------------------- carpetas


@pytest.mark.usefixtures("any_filesystem")
def test_una_carpeta_nueva_sustituye_entera_a_la_anterior(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    _write_folder(path, "viejo", ("a", "sobra"))
    _write_folder(path, "nuevo")
    assert {str(p.relative_to(path)) for p in path.rglob("*")} == {"a", "b", "c", "c/d"}
    assert (path / "c/d").read_text() == "nuevo"
    assert _names(tmp_path) == ["modelo"]


@pytest.mark.usefixtures("any_filesystem")
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_un_fallo_deja_la_carpeta_anterior_y_ningun_temporal(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "modelo"
    _write_folder(path, "viejo")
    with pytest.raises(failure), atomic_dir(path) as temporary:  # noqa: PT012
        (temporary / "a").write_text("a medias")
        raise failure
    assert (path / "a").read_text() == "viejo"
    assert _names(tmp_path) == ["modelo"]


@pytest.mark.usefixtures("any_filesystem")
def test_una_carpeta_sustituye_a_un_fichero_y_a_un_enlace_roto(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    path.write_text("era un fichero")
    _write_folder(path, "nuevo")
    assert (path / "a").read_text() == "nuevo"
    link = tmp_path / "enlace"
    link.symlink_to(tmp_path / "no-existe")
    _write_folder(link, "nuevo")
    assert (link / "a").read_text() == "nuevo"
    assert _names(tmp_path) == ["enlace", "modelo"]


def test_una_carpeta_puede_llevar_enlaces_dentro(tmp_path: Path) -> None:
    with atomic_dir(tmp_path / "modelo") as temporary:
        (temporary / "roto").symlink_to("no-existe")
        (temporary / "a").write_text("x")
        (temporary / "b").symlink_to("a")
    assert (tmp_path / "modelo/b").read_text() == "x"


def test_si_el_segundo_renombrado_falla_vuelve_la_anterior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "modelo"
    _write_folder(path, "viejo")
    rename, calls = os.rename, []

    def failing(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("disco")
        rename(source, target)

    monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="disco"):
        _write_folder(path, "nuevo")
    assert (path / "a").read_text() == "viejo"
    assert _names(tmp_path) == ["modelo"]


def test_quien_lee_nunca_ve_faltar_la_carpeta(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    _write_folder(path, "0")
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    if not files._exchange(tmp_path / "x", tmp_path / "y"):
        pytest.skip("este sistema de ficheros no sabe intercambiar carpetas")
    missing, stop = [], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            if not path.is_dir():
                missing.append(True)

    reader = threading.Thread(target=watch)
    reader.start()
    for turn in range(60):
        _write_folder(path, str(turn), ("a",))
    stop.set()
    reader.join()
    assert missing == []


# ---------------------------------------------------------------- kill -9

_HALF_WRITTEN = """
import os, signal, sys
from pathlib import Path
from enlace.files import atomic_dir, atomic_file
path = Path(sys.argv[1])
with (atomic_dir if sys.argv[2] == "dir" else atomic_file)(path) as temporary:
    target = temporary / "a" if sys.argv[2] == "dir" else temporary
    target.write_text("a med")
    os.kill(os.getpid(), signal.SIGKILL)
"""

_BETWEEN_RENAMES = """
import os, signal, sys
from pathlib import Path
from enlace import files
rename, calls = os.rename, []
def deadly(source, target):
    calls.append(target)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
files._exchange = lambda first, second: False
os.rename = deadly
files._remove = lambda path: os.kill(os.getpid(), signal.SIGKILL)
with files.atomic_dir(Path(sys.argv[1])) as temporary:
    (temporary / "a").write_text("nuevo")
"""

_WRITE_FOREVER = """
import sys
from pathlib import Path
from enlace.files import atomic_dir
turn = 0
while True:
    turn += 1
    with atomic_dir(Path(sys.argv[1])) as temporary:
        for name in "abc":
            (temporary / name).write_text(str(turn))
    print(turn, flush=True)
"""


def _killed(code: str, *arguments: object) -> None:
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL


def test_un_kill_a_media_escritura_deja_el_fichero_anterior(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    write_text(path, "viejo")
    _killed(_HALF_WRITTEN, path, "file")
    assert path.read_text() == "viejo"
    orphans = remove_temporaries(tmp_path)
    assert [orphan.name.startswith(TEMPORARY_PREFIX) for orphan in orphans] == [True]
    assert _names(tmp_path) == ["f.txt"]


def test_un_kill_a_media_escritura_deja_la_carpeta_anterior(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    _write_folder(path, "viejo")
    _killed(_HALF_WRITTEN, path, "dir")
    assert (path / "a").read_text() == "viejo"
    assert len(remove_temporaries(tmp_path)) == 1
    assert _names(tmp_path) == ["modelo"]


@pytest.mark.parametrize("repair", ["remove_temporaries", "otra escritura", "otra interrumpida"])
@pytest.mark.parametrize(("rename", "survivor"), [(1, "viejo"), (2, "viejo"), (9, "nuevo")])
def test_un_kill_entre_los_dos_renombrados_no_pierde_nada(
    tmp_path: Path, rename: int, survivor: str, repair: str
) -> None:
    # Con 9 no muere en ningún renombrado, sino antes de borrar la carpeta apartada.
    path = tmp_path / "[modelo]*"
    _write_folder(path, "viejo")
    _killed(_BETWEEN_RENAMES, path, rename)
    if repair == "remove_temporaries":
        remove_temporaries(tmp_path)
        assert _names(tmp_path) == [path.name]
    elif repair == "otra escritura":
        _write_folder(path, "tercera")
        survivor = "tercera"
    else:
        _killed(_HALF_WRITTEN, path, "dir")
    assert (path / "a").read_text() == survivor
    remove_temporaries(tmp_path)
    assert _names(tmp_path) == [path.name]
    assert (path / "a").read_text() == survivor


def test_un_kill_en_cualquier_momento_deja_una_carpeta_entera(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    for delay in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITE_FOREVER, str(path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        for _ in range(1 + delay):
            writer.stdout.readline()
        threading.Event().wait(0.003 * delay)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        remove_temporaries(tmp_path)
        assert len({(path / name).read_text() for name in "abc"}) == 1
        assert _names(tmp_path) == ["modelo"]


def test_remove_temporaries_solo_borra_temporales(tmp_path: Path) -> None:
    outside = tmp_path / "fuera"
    outside.mkdir()
    (outside / "x").write_text("x")
    folder = tmp_path / "dentro"
    folder.mkdir()
    (folder / ".tmp-enlace").symlink_to(outside)
    (folder / ".tmp-fichero").write_text("x")
    (folder / ".tmp-carpeta").mkdir()
    (folder / ".oculto").write_text("x")
    removed = remove_temporaries(folder)
    assert [path.name for path in removed] == [".tmp-carpeta", ".tmp-enlace", ".tmp-fichero"]
    assert _names(folder) == [".oculto"]
    assert _names(outside) == ["x"]
    assert remove_temporaries(tmp_path / "no-existe") == []


# ---------------------------------------------------------------- JSON y resúmenes


def test_el_json_canonico_es_uno_por_valor() -> None:
    assert canonical_json({"b": [1, 2.0], "a": "ñ"}) == '{"a":"ñ","b":[1,2.0]}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    assert canonical_json([3e-5, 0.00003, 3.0e-05]) == "[3e-05,3e-05,3e-05]"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_e_infinito_se_rechazan(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": [value]})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", value)
    assert _names(tmp_path) == []


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_el_json_canonico_se_lee_igual_y_es_estable(value: Any) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert sha256_json(value) == hashlib.sha256(text.encode()).hexdigest()


def test_write_json_es_legible_y_conserva_el_orden(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": "ñ", "a": [1]})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert text == '{\n  "b": "ñ",\n  "a": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_sha256_de_un_fichero(tmp_path: Path, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    (tmp_path / "x").write_bytes(content)
    assert sha256_file(tmp_path / "x") == hashlib.sha256(content).hexdigest()
