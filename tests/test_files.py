"""Escrituras enteras: lo anterior o lo nuevo, nunca una mezcla."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from enlace import files
from enlace.files import (
    atomic_dir,
    atomic_file,
    write_bytes,
    write_text,
)
from tests.support_files import names_in, write_folder


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


# ---------------------------------------------------------------- ficheros


def test_un_fichero_se_crea_con_sus_carpetas_y_se_sustituye(tmp_path: Path) -> None:
    path = tmp_path / "una/dos/f.txt"
    write_text(path, "año")
    assert path.read_bytes() == "año".encode()
    write_bytes(path, b"\x00nuevo")
    assert path.read_bytes() == b"\x00nuevo"
    assert names_in(path.parent) == ["f.txt"]


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
    assert names_in(tmp_path) == ["f.txt"]


def test_un_destino_imposible_no_deja_temporales(tmp_path: Path) -> None:
    (tmp_path / "carpeta").mkdir()
    with pytest.raises(OSError, match="carpeta"):
        write_text(tmp_path / "carpeta", "x")
    assert names_in(tmp_path) == ["carpeta"]


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
    write_folder(tmp_path / "carpeta", "x")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes[tmp_path / "f.txt"] == 0o666 & ~umask
    assert modes[tmp_path / "carpeta"] == 0o777 & ~umask
    assert modes[tmp_path / "carpeta/a"] == 0o666 & ~umask


def test_la_umask_nunca_se_toca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # os.umask es del proceso entero: otro hilo crearía ficheros abiertos a todos.
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("ha llamado a os.umask"))
    write_text(tmp_path / "f.txt", "x")
    write_folder(tmp_path / "carpeta", "x")


def test_dos_escrituras_a_la_vez_del_mismo_fichero_no_se_mezclan(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    with atomic_file(path) as one, atomic_file(path) as two:
        assert one != two
        one.write_text("uno")
        two.write_text("dos")
    assert path.read_text() == "uno"
    assert names_in(tmp_path) == ["f.txt"]


# ---------------------------------------------------------------- carpetas


@pytest.mark.usefixtures("any_filesystem")
def test_una_carpeta_nueva_sustituye_entera_a_la_anterior(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    write_folder(path, "viejo", ("a", "sobra"))
    write_folder(path, "nuevo")
    assert {str(p.relative_to(path)) for p in path.rglob("*")} == {"a", "b", "c", "c/d"}
    assert (path / "c/d").read_text() == "nuevo"
    assert names_in(tmp_path) == ["modelo"]


@pytest.mark.usefixtures("any_filesystem")
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_un_fallo_deja_la_carpeta_anterior_y_ningun_temporal(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "modelo"
    write_folder(path, "viejo")
    with pytest.raises(failure), atomic_dir(path) as temporary:  # noqa: PT012
        (temporary / "a").write_text("a medias")
        raise failure
    assert (path / "a").read_text() == "viejo"
    assert names_in(tmp_path) == ["modelo"]


@pytest.mark.usefixtures("any_filesystem")
def test_una_carpeta_sustituye_a_un_fichero_y_a_un_enlace_roto(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    path.write_text("era un fichero")
    write_folder(path, "nuevo")
    assert (path / "a").read_text() == "nuevo"
    link = tmp_path / "enlace"
    link.symlink_to(tmp_path / "no-existe")
    write_folder(link, "nuevo")
    assert (link / "a").read_text() == "nuevo"
    assert names_in(tmp_path) == ["enlace", "modelo"]


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
    write_folder(path, "viejo")
    rename, calls = os.rename, []

    def failing(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("disco")
        rename(source, target)

    monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="disco"):
        write_folder(path, "nuevo")
    assert (path / "a").read_text() == "viejo"
    assert names_in(tmp_path) == ["modelo"]


def test_quien_lee_nunca_ve_faltar_la_carpeta(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    write_folder(path, "0")
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
        write_folder(path, str(turn), ("a",))
    stop.set()
    reader.join()
    assert missing == []
