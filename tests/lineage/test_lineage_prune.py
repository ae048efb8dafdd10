"""Borrar runs: solo terminados, con el modelo a salvo y comprobado, y nunca uno en uso o actual."""

import json
import shutil
from pathlib import Path

import pytest

from enlace.config.yaml_io import dump_yaml
from enlace.errors import LockError
from enlace.process import exclusive_lock
from enlace.workspace.prune import candidates, prune_lines, remove
from tests.lineage.conftest import CHANGES, RUN
from tests.support import make_config


@pytest.fixture
def old(root: Path) -> Path:
    """El proyecto, con otro run puesto en `params.yaml`."""
    config = make_config({**CHANGES, "train.lr": 1e-4})
    text = dump_yaml(config.model_dump(mode="json"))
    Path("params.yaml").write_text(text, encoding="utf-8")
    return root


def reason(root: Path) -> str | None:
    (found,) = candidates(Path())
    return found.kept


def test_sin_pedirlo_solo_se_ensena_y_con_yes_se_borra(old: Path) -> None:
    size = sum(path.lstat().st_size for path in RUN.rglob("*") if path.is_file())
    (found,) = candidates(Path())
    assert (found.kept, found.nbytes) == (None, size)
    lines = list(prune_lines(Path(), yes=False))
    assert lines[0].startswith(f"se puede borrar {RUN.name}")
    assert RUN.is_dir()
    assert next(iter(prune_lines(Path(), yes=True))).startswith(f"borrado {RUN.name}")
    assert not list(Path("runs").iterdir())  # tampoco el enlace al run
    assert list(prune_lines(Path(), yes=True)) == ["no hay nada que borrar"]


def test_el_de_params_no_se_borra(root: Path) -> None:
    assert reason(root) == "es el de params.yaml"
    list(prune_lines(Path(), yes=True))
    assert RUN.is_dir()


def test_uno_en_uso_no_se_borra(old: Path) -> None:
    with exclusive_lock(RUN / "lock"):
        assert "lo usa el proceso" in str(reason(old))
        with pytest.raises(LockError):
            remove(RUN)
    assert reason(old) is None


def test_uno_sin_terminar_no_se_borra(old: Path) -> None:
    shutil.rmtree(max((RUN / "checkpoints").iterdir()))
    assert reason(old) == "sin terminar"


def test_basta_la_cache_si_esta_sana_y_entera(old: Path) -> None:
    shutil.rmtree("checkpoints")
    assert reason(old) is None
    for path in list(Path(".dvc/cache/files/md5").glob("*/*.dir")):
        files = {entry["relpath"]: entry["md5"] for entry in json.loads(path.read_text())}
        if "manifest.json" in files:
            md5 = files["tokenizer.json"]
            stored = Path(".dvc/cache/files/md5") / md5[:2] / md5[2:]
            content = stored.read_bytes()
            stored.unlink()
            stored.write_bytes(content[:-1] + b"!")
    assert "no está en checkpoints/model" in str(reason(old))


def test_basta_checkpoints_model_si_esta_sano(old: Path) -> None:
    shutil.rmtree(".dvc/cache")
    assert reason(old) is None
    weights = Path("checkpoints/model/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    assert "no está en checkpoints/model" in str(reason(old))
