"""Qué ficheros entran: patrones, orden, enlaces y extensiones."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enlace.data.readers.blocks import read_lines
from enlace.data.readers.iterate import training_files
from enlace.data.selection import glob_to_regex, select_files
from enlace.errors import DataError
from tests.data.builders import write_tree
from tests.support import make_config

_EXTENSIONS = (".txt", ".jsonl")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "b/c/a.txt", True),
        ("*.txt", "b/a.txt", False),
        ("b/*.txt", "b/a.txt", True),
        ("b/**", "b/c/a.txt", True),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("a+b(1).txt", "a+b(1).txt", True),
        ("a.txt", "aXtxt", False),
        ("a.txt", "a.txt\n", False),
    ],
)
def test_los_patrones_casan_como_se_espera(pattern: str, name: str, expected: bool) -> None:
    assert bool(re.match(glob_to_regex(pattern), name)) is expected


def test_el_orden_no_depende_de_como_el_disco_lista(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["b/z.txt", "b.txt", "ñ.txt", "A.txt", "b/a.txt", "z.txt"]
    write_tree(tmp_path, dict.fromkeys(names, "hola"))
    straight = select_files(tmp_path, ("**/*.txt", "b/*"), _EXTENSIONS).files
    walk = os.walk

    def backwards(*args: Any, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, files in walk(*args, **options):
            folders.sort(reverse=True)
            yield folder, folders, sorted(files, reverse=True)

    monkeypatch.setattr(os, "walk", backwards)
    assert select_files(tmp_path, ("**/*.txt", "b/*"), _EXTENSIONS).files == straight
    assert straight == ("A.txt", "b.txt", "b/a.txt", "b/z.txt", "z.txt", "ñ.txt")


def test_una_extension_desconocida_se_cuenta_y_se_nombra(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": "hola", "b.pdf": "12345", "LEEME": "x", "C.TXT": "hola"})
    selection = select_files(tmp_path, ("**/*",), _EXTENSIONS)
    assert selection.files == ("C.TXT", "a.txt")
    assert [(r.source, r.size) for r in selection.refused] == [("LEEME", 1), ("b.pdf", 5)]
    assert ".pdf" in selection.refused[1].detail


def test_una_tuberia_no_bloquea_la_lectura(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": "hola"})
    os.mkfifo(tmp_path / "b.txt")
    selection = select_files(tmp_path, ("**/*",), _EXTENSIONS)
    assert selection.files == ("a.txt",)
    assert selection.refused[0].source == "b.txt"


def test_lo_oculto_no_entra(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.txt": "x", ".b.txt": "x", ".git/c.txt": "x"})
    assert select_files(tmp_path, ("**/*",), _EXTENSIONS) == (("a.txt",), ())


def test_un_enlace_que_sale_de_la_carpeta_se_rechaza(tmp_path: Path) -> None:
    write_tree(tmp_path, {"fuera.txt": "secreto", "corpus/a.txt": "x"})
    (tmp_path / "corpus/b.txt").symlink_to(tmp_path / "fuera.txt")
    with pytest.raises(DataError, match=r"b\.txt lleva fuera"):
        select_files(tmp_path / "corpus", ("**/*",), _EXTENSIONS)


def test_un_enlace_a_carpeta_o_roto_se_rechaza(tmp_path: Path) -> None:
    write_tree(tmp_path, {"otra/c.txt": "x", "corpus/a.txt": "x"})
    link = tmp_path / "corpus/libros"
    link.symlink_to(tmp_path / "otra")
    with pytest.raises(DataError, match="enlace a una carpeta"):
        select_files(tmp_path / "corpus", ("**/*",), _EXTENSIONS)
    link.unlink()
    (tmp_path / "corpus/b.txt").symlink_to(tmp_path / "no_existe.txt")
    with pytest.raises(DataError, match="está roto"):
        select_files(tmp_path / "corpus", ("**/*",), _EXTENSIONS)


def test_valen_los_enlaces_interiores_y_los_de_la_cache_de_dvc(tmp_path: Path) -> None:
    cached = "cache/files/md5/ab/" + "0" * 30
    write_tree(tmp_path, {cached: "x", "corpus/a.txt": "x"})
    (tmp_path / "corpus/b.txt").symlink_to(tmp_path / "corpus/a.txt")
    (tmp_path / "corpus/c.txt").symlink_to(tmp_path / cached)
    files = select_files(tmp_path / "corpus", ("**/*",), _EXTENSIONS).files
    assert files == ("a.txt", "b.txt", "c.txt")


def test_si_nada_casa_el_error_nombra_los_patrones(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.dat": "x"})
    with pytest.raises(DataError, match=r"data\.include \(\*\.txt\)"):
        select_files(tmp_path, ("*.txt",), _EXTENSIONS)
    with pytest.raises(DataError, match=r"a\.dat: extensión desconocida \.dat"):
        select_files(tmp_path, ("*",), _EXTENSIONS)
    with pytest.raises(DataError, match="no existe la carpeta"):
        select_files(tmp_path / "nada", ("*",), _EXTENSIONS)


@pytest.mark.parametrize("name", [b"a\xf1o.txt", b"a\xf1o/a.txt"])
def test_un_nombre_que_no_es_utf8_se_rechaza(tmp_path: Path, name: bytes) -> None:
    write_tree(tmp_path, {"b.txt": "x"})
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    with pytest.raises(DataError, match="el nombre no es UTF-8") as refused:
        select_files(tmp_path, ("**/*",), _EXTENSIONS)
    str(refused.value).encode("utf-8")


@pytest.mark.parametrize("locked", ["a.txt", "carpeta"])
def test_lo_que_no_se_puede_leer_se_dice_en_espanol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """Como las pruebas pueden correr como root, el permiso se niega desde dentro."""
    write_tree(tmp_path / "src", {"a.txt": "texto", "carpeta/b.txt": "texto"})
    denied = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "src" / locked))

    def deny(path: Any, *arguments: Any, **options: Any) -> Any:
        raise denied

    if locked == "carpeta":
        monkeypatch.setattr(os, "walk", lambda _, onerror: onerror(denied))
        read: Callable[[], Any] = partial(training_files, tmp_path / "src", make_config().data)
    else:
        monkeypatch.setattr(Path, "open", deny)
        read = partial(list, read_lines(tmp_path / "src/a.txt"))
    with pytest.raises(DataError, match=rf"{locked}: no tienes permiso; revisa los permisos"):
        read()
