"""Lo que se dice cuando no hay qué servir ni con qué. Sin torch y sin llama.cpp."""

import subprocess
import sys
from pathlib import Path

import pytest

from enlace.errors import ServeError
from enlace.serve import engine
from enlace.serve.engine import require_engine
from enlace.serve.served import open_served
from enlace.train.artifact import MANIFEST


def test_sin_exportacion_se_dice_como_se_hace(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"nada no existe; .*make export"):
        open_served(tmp_path / "nada")
    with pytest.raises(ServeError, match=r"no tiene ningún modelo exportado; .*make export"):
        open_served(tmp_path)
    (tmp_path / "fichero").touch()
    with pytest.raises(ServeError, match=r"fichero no es una carpeta; .*make export"):
        open_served(tmp_path / "fichero")


def test_un_modelo_sin_exportar_se_dice_con_su_orden(tmp_path: Path) -> None:
    folder = tmp_path / "mi modelo"
    folder.mkdir()
    (folder / MANIFEST).touch()
    with pytest.raises(ServeError, match=r"sin exportar; .*enlace export '.*mi modelo'"):
        open_served(folder)


def test_si_falta_llama_cpp_se_dice_como_se_instala(monkeypatch: pytest.MonkeyPatch) -> None:
    require_engine()
    monkeypatch.setattr(engine, "find_spec", lambda name: None if name == "xllamacpp" else object())
    with pytest.raises(ServeError, match=r"hace falta xllamacpp; `make serve` lo instala"):
        require_engine()


def test_servir_no_importa_torch() -> None:
    code = "import sys\nimport enlace.serve.app, enlace.serve.server\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
