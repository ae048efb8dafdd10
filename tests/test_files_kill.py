"""Escrituras cortadas por un kill -9: queda lo anterior o lo nuevo, y los restos se recogen."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from enlace.files import (
    TEMPORARY_PREFIX,
    remove_temporaries,
    write_text,
)
from tests.support_files import names_in, write_folder

ROOT = Path(__file__).parents[1]

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
    assert names_in(tmp_path) == ["f.txt"]


def test_un_kill_a_media_escritura_deja_la_carpeta_anterior(tmp_path: Path) -> None:
    path = tmp_path / "modelo"
    write_folder(path, "viejo")
    _killed(_HALF_WRITTEN, path, "dir")
    assert (path / "a").read_text() == "viejo"
    assert len(remove_temporaries(tmp_path)) == 1
    assert names_in(tmp_path) == ["modelo"]


@pytest.mark.parametrize("repair", ["remove_temporaries", "otra escritura", "otra interrumpida"])
@pytest.mark.parametrize(("rename", "survivor"), [(1, "viejo"), (2, "viejo"), (9, "nuevo")])
def test_un_kill_entre_los_dos_renombrados_no_pierde_nada(
    tmp_path: Path, rename: int, survivor: str, repair: str
) -> None:
    # Con 9 no muere en ningún renombrado, sino antes de borrar la carpeta apartada.
    path = tmp_path / "[modelo]*"
    write_folder(path, "viejo")
    _killed(_BETWEEN_RENAMES, path, rename)
    if repair == "remove_temporaries":
        remove_temporaries(tmp_path)
        assert names_in(tmp_path) == [path.name]
    elif repair == "otra escritura":
        write_folder(path, "tercera")
        survivor = "tercera"
    else:
        _killed(_HALF_WRITTEN, path, "dir")
    assert (path / "a").read_text() == survivor
    remove_temporaries(tmp_path)
    assert names_in(tmp_path) == [path.name]
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
        assert names_in(tmp_path) == ["modelo"]


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
    assert names_in(folder) == [".oculto"]
    assert names_in(outside) == ["x"]
    assert remove_temporaries(tmp_path / "no-existe") == []
