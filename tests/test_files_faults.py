"""Un fallo al escribir nombra lo que se quería escribir, nunca el temporal, y no deja nada."""

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from enlace.errors import user_errors
from enlace.files import atomic_dir, atomic_file
from tests.support_files import names_in

Atomic = Callable[[Path], AbstractContextManager[Path]]

_LIMIT = 1 << 16
_WRITERS = pytest.mark.parametrize("atomic", [atomic_file, atomic_dir])


@pytest.fixture
def small_files() -> Iterator[None]:
    """Ningún fichero puede pasar de 64 KiB: el fallo llega al escribir y sin ruta."""
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, previous[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, previous)
    signal.signal(signal.SIGXFSZ, handler)


def _write(temporary: Path, content: bytes) -> None:
    """En el fichero temporal, o en uno dentro de la carpeta temporal."""
    path = temporary / "dentro" if temporary.is_dir() else temporary
    path.write_bytes(content)


@_WRITERS
@pytest.mark.usefixtures("small_files")
def test_lo_que_no_cabe_nombra_el_destino(
    atomic: Atomic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "salida"
    with pytest.raises(SystemExit), user_errors(), atomic(path) as temporary:
        _write(temporary, bytes(2 * _LIMIT))
    assert capsys.readouterr().err.startswith(f"enlace: {path}: el fichero es demasiado grande")
    assert names_in(tmp_path) == []


@_WRITERS
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_un_disco_que_falla_sin_decir_donde_nombra_el_destino(
    atomic: Atomic, number: int, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="fallo") as caught, atomic(tmp_path / "salida"):
        raise OSError(number, "fallo")
    assert caught.value.filename == str(tmp_path / "salida")


@_WRITERS
def test_un_fallo_en_el_temporal_nombra_el_destino(atomic: Atomic, tmp_path: Path) -> None:
    path = tmp_path / "salida"
    with pytest.raises(OSError, match="fallo") as caught, atomic(path) as temporary:
        raise OSError(errno.EROFS, "fallo", str(temporary / "a/b"))
    assert caught.value.filename == str(path / "a/b")
    with pytest.raises(OSError, match="fallo") as caught, atomic(path) as temporary:
        raise OSError(errno.EXDEV, "fallo", "otro", None, str(temporary))
    assert (caught.value.filename, caught.value.filename2) == ("otro", str(path))


@_WRITERS
def test_lo_que_no_es_del_destino_no_se_le_atribuye(atomic: Atomic, tmp_path: Path) -> None:
    for error in (
        BrokenPipeError(errno.EPIPE, "fallo"),
        OSError(errno.ENOSPC, "fallo", str(tmp_path / "otro")),
    ):
        named = error.filename
        with pytest.raises(OSError, match="fallo"), atomic(tmp_path / "salida"):
            raise error
        assert error.filename == named


def test_un_punto_de_montaje_se_dice_antes_de_trabajar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "salida"
    path.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda each: Path(each) == path)
    with pytest.raises(OSError, match="salida") as caught, atomic_dir(path):
        pytest.fail("el trabajo no debía empezar")
    assert caught.value.errno == errno.EBUSY
    assert names_in(tmp_path) == ["salida"]
