"""Cada llamada al sistema de un guardado falla, una a una: nada anterior se pierde ni se estropea.

Se guarda el paso 3 sobre una carpeta con el 1 y el 2 y `keep_last` 2, así que un guardado bueno
también poda. Se hace una vez sin fallos para contar las llamadas y otra por cada llamada y fallo.
"""

import errno
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from enlace import files
from enlace.errors import CheckpointError
from enlace.files import TEMPORARY_PREFIX
from enlace.train.checkpoint import CHECKPOINTS, newest_complete, verify_checkpoint
from enlace.train.writer import CheckpointWriter
from tests.support import make_config
from tests.train.checkpoints import CPU, save_small, small_state, small_tensors, steps_in
from tests.train.faults import EMPTY_WRITE, SHORT_WRITE, Faults, faulty_system

CONFIG = make_config({"train.keep_last": 2, "train.save_retries": 0, "train.decay": 0})
HARD = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EINTR, errno.EACCES)


def save(run_dir: Path, step: int) -> tuple[bool, list[str]]:
    """Guarda un paso con un escritor nuevo; devuelve si salió bien y lo que dijo."""
    said: list[str] = []
    writer = CheckpointWriter(run_dir, CONFIG, CPU, said.append, sync=lambda: None)
    tensors = small_tensors(step)
    writer.save(small_state(step), tensors, tensors)
    try:
        writer.wait()
    except CheckpointError:
        return False, said
    return True, said


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Una carpeta en memoria, si la hay: son miles de ficheros pequeños."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    save_small(folder, 1)
    save_small(folder, 2)
    return folder


def count_calls(run_dir: Path) -> list[str]:
    with faulty_system(Faults()) as faults:
        assert save(run_dir, 3) == (True, [])
    return faults.calls


def check_survival(run_dir: Path, saved: bool, said: list[str], faults: Faults) -> None:
    """Lo que debe valer tras cualquier fallo."""
    expected = [3, 2] if saved else [2, 1]
    present = {step: run_dir / CHECKPOINTS / f"step_{step:08d}" for step in steps_seen(run_dir)}
    # Ninguno de los que siguen con su nombre está a medias, y los que debe haber están.
    for path in present.values():
        verify_checkpoint(path)
    assert set(expected) <= present.keys()
    if not saved:
        assert faults.failed
        assert "no se ha podido guardar" in said[0]
    found = newest_complete(run_dir)
    assert found is not None
    assert found.rejected == ()
    assert found.state["step"] == max(present)
    assert set(steps_in(run_dir)) == present.keys()
    # Con el disco ya sano, el siguiente sale, poda y no deja restos.
    with faulty_system(Faults()):
        assert save(run_dir, 4) == (True, [])
    assert steps_in(run_dir) == sorted([4, max(present)])


def steps_seen(run_dir: Path) -> list[int]:
    folders = (run_dir / CHECKPOINTS).iterdir()
    return [int(path.name[5:]) for path in folders if not path.name.startswith(TEMPORARY_PREFIX)]


def survive_every_call(base: Path, scratch: Path, kind: int | str, sticky: bool) -> int:
    """Un guardado por cada llamada que puede fallar; devuelve cuántos no se pudieron hacer."""
    calls = count_calls(Path(shutil.copytree(base, scratch / "sin fallos")))
    failures = 0
    for at, name in enumerate(calls):
        if not isinstance(kind, int) and name != "write":
            continue
        run_dir = Path(shutil.copytree(base, scratch / f"{at}"))
        with faulty_system(Faults(at, kind, sticky)) as faults:
            saved, said = save(run_dir, 3)
        assert faults.failed or name == "close", (at, name)
        check_survival(run_dir, saved, said, faults)
        failures += not saved
        shutil.rmtree(run_dir)
    return failures


def test_un_guardado_pasa_por_todas_las_llamadas_que_se_estropean(
    base: Path, scratch: Path
) -> None:
    calls = count_calls(Path(shutil.copytree(base, scratch / "run")))
    for name in ("open", "write", "fsync", "close", "mkdir", "rename", "unlink", "rmdir"):
        assert name in calls, name


def test_el_disco_se_llena_en_cualquier_llamada(base: Path, scratch: Path) -> None:
    assert survive_every_call(base, scratch, errno.ENOSPC, sticky=True) > 10


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True], ids=["una vez", "desde entonces"])
@pytest.mark.parametrize("kind", HARD, ids=errno.errorcode.get)
def test_cualquier_error_en_cualquier_llamada(
    base: Path, scratch: Path, kind: int, sticky: bool
) -> None:
    assert survive_every_call(base, scratch, kind, sticky) > 10


def test_una_escritura_corta_se_completa_y_una_que_no_avanza_es_un_fallo(
    base: Path, scratch: Path
) -> None:
    assert survive_every_call(base, scratch / "corta", SHORT_WRITE, sticky=False) == 0
    assert survive_every_call(base, scratch / "nada", EMPTY_WRITE, sticky=True) > 3


@pytest.mark.slow
def test_un_reintento_basta_si_el_fallo_fue_pasajero(base: Path, scratch: Path) -> None:
    """Con un reintento, ningún fallo aislado, sea donde sea, cuesta un guardado."""
    config = make_config({"train.keep_last": 2, "train.save_retries": 1, "train.decay": 0})
    for at in range(len(count_calls(Path(shutil.copytree(base, scratch / "sin fallos"))))):
        run_dir = Path(shutil.copytree(base, scratch / f"{at}"))
        writer = CheckpointWriter(run_dir, config, CPU, lambda _: None, sync=lambda: None)
        with faulty_system(Faults(at, errno.EIO)):
            writer.save(small_state(3), small_tensors(3), small_tensors(3))
            writer.wait()
        found = newest_complete(run_dir)
        assert found is not None
        assert (found.state["step"], found.rejected) == (3, ())


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False], ids=["intercambio", "dos renombrados"])
def test_repetir_un_paso_ya_guardado_tampoco_lo_pone_en_peligro(
    base: Path, scratch: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Como tras un checkpoint nuevo dañado: el paso se vuelve a guardar encima."""
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    calls = len(count_again(Path(shutil.copytree(base, scratch / "sin fallos"))))
    for at in range(calls):
        run_dir = Path(shutil.copytree(base, scratch / f"{at}"))
        with faulty_system(Faults(at, errno.ENOSPC, sticky=True)):
            save(run_dir, 2)
        found = newest_complete(run_dir)
        assert found is not None
        assert (found.state["step"], found.rejected) == (2, ())
        assert steps_in(run_dir) == [1, 2]


def count_again(run_dir: Path) -> list[str]:
    with faulty_system(Faults()) as faults:
        assert save(run_dir, 2) == (True, [])
    return faults.calls


def test_una_escritura_que_el_sistema_corta_de_verdad(base: Path, scratch: Path) -> None:
    run_dir = Path(shutil.copytree(base, scratch / "run"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        saved, said = save(run_dir, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not saved
    assert "el fichero es demasiado grande" in said[0]
    assert steps_in(run_dir) == [1, 2]
    verify_checkpoint(run_dir / CHECKPOINTS / "step_00000002")


@pytest.mark.slow
def test_un_disco_lleno_de_verdad(tmp_path: Path) -> None:
    """Un tmpfs diminuto en un espacio de nombres propio, con cada vez menos sitio libre."""
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec {sys.executable} -m {__package__}"
    command = ["unshare", "-rm", "sh", "-c", f"{mount}.full_disk {tmp_path}"]
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("aquí no se puede montar un tmpfs sin ser administrador")
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    saved, failed = map(int, done.stdout.split())
    assert saved > 5
    assert failed > 20
