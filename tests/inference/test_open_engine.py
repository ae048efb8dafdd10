"""Qué carpetas se pueden abrir para generar, y qué se dice de las que no."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enlace.data.tokenizer import ByteTokenizer, save_tokenizer
from enlace.errors import CheckpointError, DataError
from enlace.export import build
from enlace.export.build import export_model
from enlace.inference.engine import Engine, Outcome, Request, open_engine
from enlace.model.sampling import Sampling
from tests.export.support_export import SETTINGS, small_tokenizer, trained_folder
from tests.train.runs import ORIGIN

NOTHING = Path("no hace falta")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """El modelo, su estado, su run, su tokenizador y su exportación, sin volver a probarla."""
    folder = tmp_path_factory.mktemp("abrir")
    origin = ORIGIN | {"tokenizer": small_tokenizer().fingerprint}
    model = trained_folder(folder, origin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_prove", lambda *_: {})
        export_model(model, folder / "exported", SETTINGS)
    return folder


def _run(places: Path) -> Path:
    return places / f"prueba-{'0' * 16}"


def _answer(engine: Engine) -> list[int]:
    outcome = Outcome()
    ids = small_tokenizer().encode("Había una vez")
    list(engine.stream(ids, Request(16, Sampling(0.0)), engine.generator(0), outcome))
    assert len(outcome.ids) > 4
    return outcome.ids


def test_da_igual_por_donde_se_abra(places: Path) -> None:
    newest = max((_run(places) / "checkpoints").glob("step_*"))
    expected = _answer(open_engine(places / "model", NOTHING))
    assert _answer(open_engine(places / "exported", NOTHING)) == expected
    for folder in (_run(places), newest):
        engine = open_engine(folder, places / "tokenizer")
        assert _answer(engine) == expected
        assert engine.tokenizer.to_json() == small_tokenizer().to_json()


def _copy(places: Path, name: str, to: Path) -> Path:
    return Path(shutil.copytree(places / name, to / name))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [_flip, _cut, Path.unlink])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("model", "model.safetensors"),
        ("model", "tokenizer.json"),
        ("model", "config.json"),
        ("exported", "model.safetensors"),
        ("exported", "tokenizer.json"),
        ("exported", "enlace.json"),
        ("state", "model.safetensors"),
    ],
)
def test_un_fichero_danado_se_nombra(
    places: Path, tmp_path: Path, name: str, file: str, damage: Callable[[Path], Any]
) -> None:
    folder = _copy(places, name, tmp_path)
    damage(folder / file)
    with pytest.raises(CheckpointError) as error:
        open_engine(folder, NOTHING)
    message = str(error.value)
    assert file in message or (file == "enlace.json" and str(folder) in message)
    assert "\n" not in message


def test_lo_que_no_es_un_modelo_se_dice(tmp_path: Path) -> None:
    (tmp_path / "carta.txt").write_text("hola")
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "vacía").mkdir()
    for name in ("nada", "carta.txt", "vacía", "run"):
        with pytest.raises(CheckpointError, match=name):
            open_engine(tmp_path / name, NOTHING)


def test_un_checkpoint_sin_su_tokenizador_se_rechaza(places: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tokenizador"):
        open_engine(_run(places), tmp_path / "nada")
    save_tokenizer(ByteTokenizer(), tmp_path / "otro")
    with pytest.raises(CheckpointError, match="no es el tokenizador"):
        open_engine(_run(places), tmp_path / "otro")
