"""`enlace unlock`: quita el rwlock dañado de DVC y ningún otro."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from .conftest import Project

RWLOCK = ".dvc/tmp/rwlock"


@pytest.mark.parametrize("content", [b"", b"  \n", b'{"read": {', b"[]"])
def test_un_rwlock_danado_se_quita_y_dvc_vuelve_a_funcionar(
    project: Project, content: bytes
) -> None:
    path = project.root / RWLOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    assert "make unlock" in project.ok("status")
    assert "quitado" in project.ok("unlock")
    assert not path.exists()


@pytest.mark.parametrize("content", [None, b"{}", b'{"write": {}, "read": {}}'])
def test_uno_sano_no_se_toca(project: Project, content: bytes | None) -> None:
    path = project.root / RWLOCK
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert "está bien" in project.ok("unlock")
    assert (path.read_bytes() if path.exists() else None) == content


@pytest.fixture
def living_dvc(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """Un proceso que se presenta como DVC dentro del proyecto."""
    process = subprocess.Popen(
        ["dvc", "-c", "import time; print('listo', flush=True); time.sleep(60)"],
        executable=sys.executable,
        cwd=project.root,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_con_un_dvc_vivo_se_niega(project: Project, living_dvc: subprocess.Popen[bytes]) -> None:
    path = project.root / RWLOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    assert str(living_dvc.pid) in project.refused("unlock")
    assert path.read_bytes() == b""
    living_dvc.kill()
    living_dvc.wait()
    assert "quitado" in project.ok("unlock")


@pytest.mark.slow
def test_dvc_de_verdad_falla_con_el_rwlock_vacio_y_sana_con_unlock(project: Project) -> None:
    project.dvc("repro", "--quiet", "pretrain")
    (project.root / RWLOCK).write_bytes(b"")
    failed = project.run(sys.executable, "-m", "dvc", "status")
    assert failed.returncode != 0  # si un día DVC lo arregla, esta orden sobra
    project.ok("unlock")
    project.dvc("status")
