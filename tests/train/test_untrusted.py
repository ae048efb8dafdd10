"""Ficheros que pudo escribir otro: enlaces, tuberías, JSON con trampas y nombres que salen."""

import os
import pickle
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from enlace.errors import CheckpointError, UnfinishedError
from enlace.files import sha256_file
from enlace.train.checkpoint import (
    CHECKPOINTS,
    DIGEST,
    MODEL,
    OPTIMIZER,
    STATE,
    newest_complete,
    verify_checkpoint,
)
from enlace.train.untrusted import MAX_JSON_BYTES, check_regular, read_json_object
from tests.support import make_config
from tests.train.checkpoints import read_raw_state, rewrite_state, save_small
from tests.train.runs import SHORT, final_tensors, run_training
from tests.train.streams import PeriodicStream

DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "repite la clave 'a'"),
        ('{"a": {"b": 1, "b": 1}}', "repite la clave 'b'"),
        ('{"a": NaN}', "contiene NaN"),
        ('{"a": -Infinity}', "contiene -Infinity"),
        ('{"a": 1e999}', "1e999 no cabe"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "más de 64 niveles"),
        ('{"a": ' + "[" * DEEP + "]" * DEEP + "}", "anidado sin medida|niveles"),
        ('{"a": ' * DEEP + "1" + "}" * DEEP, "anidado sin medida|niveles"),
        ('{"a": ' + "9" * 5000 + "}", "no es JSON"),
        ("[1]", "no es un objeto"),
        ("", "no es JSON"),
        ("\x00", "no es JSON"),
    ],
    ids=range(12),
)
def test_un_json_con_trampas_se_rechaza(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=reason) as caught:
        read_json_object(path)
    assert "x.json" in str(caught.value)


def test_un_json_que_no_es_utf_8_se_rechaza(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CheckpointError, match="no es JSON"):
        read_json_object(path)


def test_un_fichero_desmedido_no_se_llega_a_leer(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(CheckpointError, match="no es de enlace"):
        read_json_object(path)


def test_ni_tuberias_ni_dispositivos_ni_carpetas(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dispositivo").symlink_to("/dev/zero")
    for path in (tmp_path / "fifo", tmp_path / "dispositivo", tmp_path):
        with pytest.raises(CheckpointError, match="no es un fichero corriente"):
            check_regular(path)


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, DIGEST])
def test_una_tuberia_en_un_checkpoint_no_cuelga_la_lectura(tmp_path: Path, name: str) -> None:
    path = save_small(tmp_path, 1)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(CheckpointError, match="no es un fichero corriente"):
        verify_checkpoint(path)


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, DIGEST])
def test_un_checkpoint_con_un_enlace_se_salta(tmp_path: Path, name: str) -> None:
    save_small(tmp_path, 1)
    path = save_small(tmp_path, 2)
    outside = (path / name).rename(tmp_path / "fuera")
    (path / name).symlink_to(outside)
    found = newest_complete(tmp_path)
    assert found is not None
    assert found.state["step"] == 1
    assert f"{path / name} es un enlace" in found.rejected[0]


def test_una_carpeta_que_es_un_enlace_tampoco_vale(tmp_path: Path) -> None:
    outside = save_small(tmp_path / "otro", 2)
    (tmp_path / CHECKPOINTS).mkdir()
    (tmp_path / CHECKPOINTS / outside.name).symlink_to(outside)
    with pytest.raises(CheckpointError, match="es un enlace"):
        newest_complete(tmp_path)


@pytest.mark.parametrize(
    "name", ["../fuera", "/etc/hostname", "a/b", "..", ".", "", "a\0b", "./model.safetensors"]
)
def test_un_nombre_no_sale_de_la_carpeta(tmp_path: Path, name: str) -> None:
    path = save_small(tmp_path, 1)
    state = read_raw_state(path)
    rewrite_state(path, state | {"files": state["files"] | {name: "0" * 64}})
    with pytest.raises(CheckpointError, match="sale de su carpeta"):
        verify_checkpoint(path)


@pytest.mark.parametrize(
    "files", [{}, {MODEL: "0" * 64}, {MODEL: 3, OPTIMIZER: None}, {MODEL: [], OPTIMIZER: {}}]
)
def test_unos_resumenes_que_faltan_o_no_son_textos_se_rechazan(
    tmp_path: Path, files: dict[str, Any]
) -> None:
    path = save_small(tmp_path, 1)
    rewrite_state(path, read_raw_state(path) | {"files": files})
    with pytest.raises(CheckpointError, match=r"no enumera|está dañado"):
        verify_checkpoint(path)


def test_lo_demas_que_un_checkpoint_enumere_tambien_se_comprueba(tmp_path: Path) -> None:
    path = save_small(tmp_path, 1)
    (path / "otro.json").write_text("{}", encoding="utf-8")
    state = read_raw_state(path)
    rewrite_state(path, state | {"files": state["files"] | {"otro.json": "0" * 64}})
    with pytest.raises(CheckpointError, match=r"otro\.json está dañado"):
        verify_checkpoint(path)


@pytest.mark.parametrize(
    "text",
    ["", "0" * 64, "0" * 64 + "\n", "0" * 64 + "  otro.json\n", "0" * 5000, "0" * 64 + f" {STATE}"],
    ids=range(6),
)
def test_un_resumen_que_no_es_exacto_se_rechaza(tmp_path: Path, text: str) -> None:
    path = save_small(tmp_path, 1)
    (path / DIGEST).write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=DIGEST):
        verify_checkpoint(path)


@pytest.mark.usefixtures("finished")  # torch importa a destiempo módulos que heredan de pickle
def test_entrenar_y_reanudar_no_pasa_por_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aunque lo llame una biblioteca: aquí cualquiera que deshaga un pickle revienta."""

    def forbidden(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("alguien ha leído un pickle")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    for name in ("load", "save"):
        monkeypatch.setattr(torch, name, forbidden)
    config = make_config(SHORT)
    with pytest.raises(UnfinishedError, match="paso 4 de 6"):
        run_training(tmp_path, config, stream=PeriodicStream(config, stop_at=3))
    run_training(tmp_path, config)
    assert final_tensors(tmp_path)


def test_un_pickle_en_lugar_de_los_pesos_se_rechaza_al_reanudar(
    run_dir: Path, tmp_path: Path
) -> None:
    """Refirmado, como lo haría quien quiere colarlo: ni así se ejecuta nada."""
    proof = tmp_path / "ejecutado"

    class Payload:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(proof),)

    for path in (run_dir / CHECKPOINTS).iterdir():
        (path / MODEL).write_bytes(pickle.dumps(Payload()))
        state = read_raw_state(path)
        rewrite_state(path, state | {"files": state["files"] | {MODEL: sha256_file(path / MODEL)}})
    with pytest.raises(CheckpointError, match="no es safetensors"):
        run_training(run_dir, make_config(SHORT))
    assert not proof.exists()
