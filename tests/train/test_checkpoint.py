"""Los checkpoints: carpetas enteras o nada, comprobadas antes de usarlas."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from enlace.errors import CheckpointError
from enlace.train.checkpoint import (
    CHECKPOINTS,
    DIGEST,
    MODEL,
    OPTIMIZER,
    STATE,
    newest_complete,
    read_state,
    verify_checkpoint,
)
from enlace.train.container import check_header
from tests.support import make_config
from tests.train.checkpoints import flip, rewrite_state, save_small
from tests.train.runs import SHORT, last_checkpoint


def test_la_carpeta_tiene_lo_que_dice_el_contrato(finished: Path) -> None:
    path = last_checkpoint(finished)
    assert {file.name for file in path.iterdir()} == {MODEL, OPTIMIZER, STATE, DIGEST}
    state = verify_checkpoint(path)
    assert state["step"] == 6
    assert state["tokens"] == 6 * 256
    assert state["identity"] == make_config(SHORT).identity()
    assert state["config"] == make_config(SHORT).training_values()
    assert state["schedule"] == {"steps": 6, "decay_start": 2, "next_lr": 0.0}
    assert set(state["files"]) == {MODEL, OPTIMIZER}
    assert state["clock"]["seconds"] > 0


def test_nada_es_pickle(finished: Path) -> None:
    for file in last_checkpoint(finished).iterdir():
        content = file.read_bytes()
        assert not content.startswith((b"PK", b"\x80"))
        if file.suffix == ".safetensors":
            check_header(file)
        elif file.suffix == ".json":
            json.loads(content)


def test_el_peso_atado_se_guarda_una_vez(finished: Path) -> None:
    names = set(load_file(last_checkpoint(finished) / MODEL))
    assert "tok_emb.weight" in names
    assert "lm_head.weight" not in names
    with safe_open(last_checkpoint(finished) / OPTIMIZER, "pt") as file:
        moments = [name for name in file.keys() if name.startswith("exp_avg/")]  # noqa: SIM118
    assert {name.removeprefix("exp_avg/") for name in moments} == names


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, DIGEST])
@pytest.mark.parametrize("damage", ["borrado", "cortado", "cambiado", "vacío"])
def test_un_checkpoint_danado_se_salta_y_se_dice_por_que(
    name: str, damage: str, run_dir: Path
) -> None:
    file = last_checkpoint(run_dir) / name
    content = file.read_bytes()
    match damage:
        case "borrado":
            file.unlink()
        case "cortado":
            file.write_bytes(content[: len(content) // 2])
        case "cambiado":
            file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        case "vacío":
            file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step_00000006"):
        verify_checkpoint(last_checkpoint(run_dir))
    found = newest_complete(run_dir)
    assert found is not None
    assert found.state["step"] == 3
    assert len(found.rejected) == 1
    assert "step_00000006" in found.rejected[0]


def test_si_ninguno_sirve_no_se_empieza_de_cero_en_silencio(run_dir: Path) -> None:
    for path in (run_dir / CHECKPOINTS).iterdir():
        (path / DIGEST).unlink()
    with pytest.raises(CheckpointError, match=r"ningún checkpoint.*step_00000003"):
        newest_complete(run_dir)


def test_sin_checkpoints_se_empieza(tmp_path: Path) -> None:
    assert newest_complete(tmp_path) is None


def test_los_temporales_de_un_corte_se_borran(run_dir: Path) -> None:
    orphan = run_dir / CHECKPOINTS / ".tmp-step_00000009-abc"
    orphan.mkdir()
    (orphan / MODEL).write_bytes(b"a medias")
    found = newest_complete(run_dir)
    assert found is not None
    assert found.state["step"] == 6
    assert not orphan.exists()


def test_un_estado_de_otra_version_se_rechaza(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="formato 99"):
        save_small(tmp_path, 1, version=99)


@pytest.mark.parametrize(("key", "value"), [("step", "1"), ("segments", {}), ("counters", None)])
def test_un_estado_sin_la_forma_debida_se_rechaza(tmp_path: Path, key: str, value: Any) -> None:
    path = save_small(tmp_path, 1)
    state = json.loads((path / STATE).read_text(encoding="utf-8")) | {key: value}
    rewrite_state(path, state)
    with pytest.raises(CheckpointError, match=f"clave {key}"):
        read_state(path)


def test_una_carpeta_renombrada_se_rechaza(tmp_path: Path) -> None:
    path = save_small(tmp_path, 1)
    renamed = path.rename(path.with_name("step_00000002"))
    with pytest.raises(CheckpointError, match="le cambiaron el nombre"):
        read_state(renamed)


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, DIGEST])
def test_cada_byte_de_un_checkpoint_esta_vigilado(tmp_path: Path, name: str) -> None:
    """Un bit de cada byte, cada vez otro, de un checkpoint diminuto."""
    path = save_small(tmp_path, 1)
    for byte in range((path / name).stat().st_size):
        bit = 8 * byte + byte % 8
        flip(path / name, bit)
        with pytest.raises(CheckpointError):
            verify_checkpoint(path)
        flip(path / name, bit)
    verify_checkpoint(path)
