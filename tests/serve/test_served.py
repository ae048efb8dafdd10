"""Qué se sirve: qué GGUF, y qué se dice cuando la carpeta no sirve. Sin torch y sin llama.cpp."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from enlace.errors import CheckpointError, ServeError
from enlace.export import build
from enlace.export.build import export_model
from enlace.serve import engine
from enlace.serve.engine import require_engine
from enlace.serve.served import open_served
from tests.export.support_export import SETTINGS, trained_folder

FORMATS = ("f32", "f16", "q8_0")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Una exportación sin sus comprobaciones, que aquí no se miran."""
    folder = tmp_path_factory.mktemp("servido")
    settings = SETTINGS.model_copy(update={"gguf": FORMATS, "temperature": 0.25})
    nothing: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_prove", lambda *_: nothing)
        export_model(trained_folder(folder), folder / "exported", settings)
    return folder / "exported"


def test_sin_decir_nada_se_sirve_el_mejor_para_una_cpu(exported: Path) -> None:
    found = open_served(exported)
    assert (found.gguf.name, found.format) == ("prueba-Q8_0.gguf", "Q8_0")
    assert (found.name, found.chats, found.sampling.temperature) == ("prueba", False, 0.25)
    assert open_served(exported, "prueba-F32.gguf").format == "F32"


def test_lo_que_no_hay_se_dice_con_su_remedio(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="make export"):
        open_served(tmp_path / "nada")
    with pytest.raises(ServeError, match=r"tiene prueba-Q8_0\.gguf, prueba-F16\.gguf"):
        open_served(exported, "otro.gguf")


@pytest.mark.parametrize("name", ["prueba-Q8_0.gguf", "tokenizer.json", "enlace.json"])
def test_un_bit_cambiado_se_nombra_antes_de_abrir_nada(
    exported: Path, tmp_path: Path, name: str
) -> None:
    copy = shutil.copytree(exported, tmp_path / "copia")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        open_served(copy)


def test_si_falta_llama_cpp_se_dice_como_se_instala(monkeypatch: pytest.MonkeyPatch) -> None:
    require_engine()
    monkeypatch.setattr(engine, "find_spec", lambda name: None if name == "xllamacpp" else object())
    with pytest.raises(ServeError, match=r"hace falta xllamacpp; `make serve` lo instala"):
        require_engine()


def test_servir_no_importa_torch() -> None:
    code = "import sys\nimport enlace.serve.app, enlace.serve.server\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
