"""Reanudar es exacto, y lo que no debe coincidir por casualidad se rechaza."""

import copy
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.errors import CheckpointError, UnfinishedError
from enlace.train.checkpoint import newest_complete
from tests.support import make_config
from tests.train.runs import (
    ORIGIN,
    deterministic_rows,
    final_state,
    final_tensors,
    run_training,
    validate,
)
from tests.train.streams import PeriodicStream

CASES: dict[str, dict[str, Any]] = {
    "fp32": {"hardware.threads": 1},
    "fp16": {
        "hardware.dtype": "fp16",
        "hardware.micro_batch": 4,
        "hardware.threads": 1,
        "hardware.activation_checkpointing": "block",
        "model.dropout": 0.1,
        "train.eval_every": 3,
    },
}
"""Con los 20 pasos de la configuración de prueba y un checkpoint cada 5."""
MORE_CASES: dict[str, dict[str, Any]] = {
    "dropout": {
        "model.dropout": 0.2,
        "hardware.threads": 1,
        "hardware.activation_checkpointing": "mlp",
    },
    "muon-fp16": {
        "train.optimizer": "muon",
        "hardware.dtype": "fp16",
        "hardware.threads": 1,
        "model.dropout": 0.1,
    },
    "dos hilos": {"hardware.threads": 2, "model.dropout": 0.1},
}
SHORT = {"train.steps": 6, "train.save_every": 3, "train.eval_every": 3}


def kill_and_resume(folder: Path, cases: dict[str, dict[str, Any]]) -> None:
    """Cada caso, matado con SIGKILL en el paso 13 y reanudado en otro proceso desde el 10."""
    command = [sys.executable, "-m", "tests.train.runs", str(folder), json.dumps(cases)]
    # Esperar sin gastar CPU: los hilos que giran en vacío se estorban en una máquina cargada.
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], env=environment)


def assert_same_training(found_dir: Path, expected_dir: Path) -> None:
    """Iguales en todo: tensores, estado y la tabla, con el resumen de cada batch."""
    expected, found = final_tensors(expected_dir), final_tensors(found_dir)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    assert final_state(found_dir) == final_state(expected_dir)
    assert deterministic_rows(found_dir) == deterministic_rows(expected_dir)


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Los casos, ya matados y reanudados."""
    folder = tmp_path_factory.mktemp("matados")
    kill_and_resume(folder, CASES)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_matar_y_reanudar_da_lo_mismo_bit_a_bit(
    case: str, killed_runs: Path, tmp_path: Path
) -> None:
    run_training(tmp_path, make_config(CASES[case]))
    assert_same_training(killed_runs / case, tmp_path)
    assert len(deterministic_rows(tmp_path)) == 1 + 20


@pytest.mark.slow
def test_con_muon_o_con_varios_hilos_tambien_es_exacto(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, MORE_CASES)
    for case, changes in MORE_CASES.items():
        run_training(tmp_path / "seguido" / case, make_config(changes))
        assert_same_training(tmp_path / case, tmp_path / "seguido" / case)


def test_la_escala_de_fp16_viaja_con_su_cuenta(killed_runs: Path) -> None:
    scaler = final_state(killed_runs / "fp16")["scaler"]
    # 20 pasos buenos y la escala se dobla cada 5: cuatro veces, y la cuenta vuelve a 0.
    assert scaler["scale"] == 1024.0 * 2**4
    assert scaler["_growth_tracker"] == 0


def stop_at(run_dir: Path, steps: int, changes: dict[str, Any] | None = None) -> None:
    """Entrena hasta que un SIGTERM lo para con `steps` pasos dados."""
    config = make_config(SHORT | (changes or {}))
    with pytest.raises(UnfinishedError):
        run_training(run_dir, config, stream=PeriodicStream(config, stop_at=steps - 1))


def test_parar_a_mitad_guarda_y_da_el_codigo_de_la_senal(tmp_path: Path) -> None:
    config = make_config(SHORT)
    with pytest.raises(UnfinishedError, match="paso 2 de 6") as caught:
        run_training(tmp_path / "parado", config, stream=PeriodicStream(config, stop_at=1))
    assert caught.value.exit_code == 128 + signal.SIGTERM
    found = newest_complete(tmp_path / "parado")
    assert found is not None
    assert found.state["step"] == 2
    result = run_training(tmp_path / "parado", config)
    run_training(tmp_path / "seguido", config)
    assert result.step == 6
    assert_same_training(tmp_path / "parado", tmp_path / "seguido")


def test_una_peticion_en_el_ultimo_paso_no_es_un_entrenamiento_a_medias(tmp_path: Path) -> None:
    config = make_config(SHORT)
    assert run_training(tmp_path, config, stream=PeriodicStream(config, stop_at=5)).step == 6


def test_un_entrenamiento_terminado_no_repite_nada(tmp_path: Path) -> None:
    config = make_config(SHORT)
    first = run_training(tmp_path, config)
    rows = deterministic_rows(tmp_path)
    second = run_training(tmp_path, config, stream=PeriodicStream(config, kill_at=6))
    assert second == first
    assert deterministic_rows(tmp_path) == rows


def test_un_salto_y_un_paso_vacio_tambien_se_reanudan(tmp_path: Path) -> None:
    changes = SHORT | {"hardware.dtype": "fp16", "train.fp16_init_scale": 2.0**60}
    changes |= {"train.fp16_max_skips": 60}
    config = make_config(changes)
    with pytest.raises(UnfinishedError):
        run_training(tmp_path / "a", config, stream=PeriodicStream(config, empty_at=1, stop_at=3))
    run_training(tmp_path / "a", config, stream=PeriodicStream(config, empty_at=1))
    run_training(tmp_path / "b", config, stream=PeriodicStream(config, empty_at=1))
    counters = final_state(tmp_path / "a")["counters"]
    assert counters == final_state(tmp_path / "b")["counters"]
    assert counters["skipped"] == counters["consecutive_skips"] == 5
    assert counters["empty"] == 1
    assert deterministic_rows(tmp_path / "a") == deterministic_rows(tmp_path / "b")
    assert not any(name.startswith("exp_avg") for name in final_tensors(tmp_path / "a"))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train.lr": 1e-3}, "train.lr=0.003 y ahora vale 0.001"),
        ({"train.seed": 8}, "train.seed=7"),
        ({"model.n_layer": 1}, "model.n_layer=2"),
        ({"hardware.dtype": "bf16"}, "hardware.dtype='fp32'"),
        ({"train.warmup": 1, "train.lr": 1e-3}, "train.lr"),
        ({"train.optimizer": "muon"}, "train.optimizer='adamw' y ahora vale 'muon'"),
    ],
)
def test_otra_identidad_se_rechaza_nombrando_la_clave(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    stop_at(tmp_path, 1)
    with pytest.raises(CheckpointError, match=key):
        run_training(tmp_path, make_config(SHORT | changes))


def test_otros_datos_se_rechazan(tmp_path: Path) -> None:
    stop_at(tmp_path, 1)
    config = make_config(SHORT)
    with pytest.raises(CheckpointError, match="datos-de-prueba y es otros"):
        run_training(tmp_path, config, stream=PeriodicStream(config, fingerprint="otros"))


@pytest.mark.parametrize("key", ["data", "tokenizer"])
def test_otro_origen_se_rechaza_con_las_dos_huellas(tmp_path: Path, key: str) -> None:
    stop_at(tmp_path, 1)
    with pytest.raises(CheckpointError, match=f"{key} era {ORIGIN[key]} y ahora es otra"):
        run_training(tmp_path, make_config(SHORT), origin=ORIGIN | {key: "otra"})


def test_un_cambio_operativo_abre_un_segmento(tmp_path: Path) -> None:
    stop_at(tmp_path, 2)
    run_training(tmp_path, make_config(SHORT | {"hardware.micro_batch": 4, "train.keep_last": 3}))
    first, second = final_state(tmp_path)["segments"]
    assert (first["from_step"], first["differences"]) == (0, {})
    assert second["from_step"] == 2
    assert second["differences"] == {"hardware.micro_batch": [2, 4], "train.keep_last": [2, 3]}


def test_otro_codigo_avisa_y_abre_un_segmento(tmp_path: Path) -> None:
    stop_at(tmp_path, 2)
    output = io.StringIO()
    origin = ORIGIN | {"code": "nuevo"}
    run_training(tmp_path, make_config(SHORT), origin=origin, output=output)
    assert "el código ha cambiado" in output.getvalue()
    segments = final_state(tmp_path)["segments"]
    assert [segment["code"] for segment in segments] == [ORIGIN["code"], "nuevo"]
    assert segments[1]["differences"] == {"code": [ORIGIN["code"], "nuevo"]}


def test_otros_hilos_u_otra_version_abren_un_segmento(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(tmp_path, 2)
    monkeypatch.setattr("enlace.train.resume.versions", lambda: {"torch": "9.9"})
    run_training(tmp_path, make_config(SHORT))
    segment = final_state(tmp_path)["segments"][1]
    assert segment["differences"]["versions.torch"][1] == "9.9"


def test_seguir_sin_cambios_no_abre_segmento(tmp_path: Path) -> None:
    stop_at(tmp_path, 2)
    run_training(tmp_path, make_config(SHORT))
    assert len(final_state(tmp_path)["segments"]) == 1


def test_validar_mas_a_menudo_no_cambia_las_cuentas(tmp_path: Path) -> None:
    changes = SHORT | {"model.dropout": 0.2}
    run_training(tmp_path / "a", make_config(changes | {"train.eval_every": 1}))
    run_training(tmp_path / "b", make_config(changes), evaluators=())
    expected = final_tensors(tmp_path / "a")
    for name, tensor in final_tensors(tmp_path / "b").items():
        assert torch.equal(tensor, expected[name]), name


def test_un_checkpoint_nuevo_roto_se_salta_y_se_dice(tmp_path: Path) -> None:
    stop_at(tmp_path, 4)
    weights = tmp_path / "checkpoints" / "step_00000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    output = io.StringIO()
    run_training(tmp_path, make_config(SHORT), output=output)
    assert "step_00000004/model.safetensors está dañado" in output.getvalue()
    assert "sigo desde el paso 3" in output.getvalue()
    run_training(tmp_path / "seguido", make_config(SHORT))
    assert deterministic_rows(tmp_path) == deterministic_rows(tmp_path / "seguido")


def test_una_validacion_infinita_no_impide_guardar(tmp_path: Path) -> None:
    def infinite(model: Any) -> Any:
        yield from validate(model)
        yield "val_perplexity", float("inf")

    run_training(tmp_path, make_config(SHORT), evaluators=(infinite,))
    assert final_state(tmp_path)["evaluation"]["val_perplexity"] is None


def test_el_origen_no_se_modifica(tmp_path: Path) -> None:
    origin = copy.deepcopy(ORIGIN)
    run_training(tmp_path, make_config(SHORT), origin=origin)
    assert origin == ORIGIN
