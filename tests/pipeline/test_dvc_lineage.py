"""El linaje con DVC de verdad: repetir un modelo en otro clon y partir de otro entrenamiento."""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.support_dvc import DVC, ENLACE, STEPS, TINY, TRAINER, Clone

pytestmark = pytest.mark.slow


def test_repetir_en_un_clon_limpio_da_los_mismos_pesos_bit_a_bit(
    finished: Clone, tmp_path: Path
) -> None:
    again = tmp_path / "otra vez"
    done = finished.ok(*ENLACE, "reproduce", "checkpoints/model", "--run", str(again))
    assert f"paso {STEPS}/{STEPS}" in done.text, "el entrenador no corrió en el clon"
    assert "los pesos son los mismos, bit a bit" in done.text
    weights = again / "checkpoints/model/model.safetensors"
    assert weights.read_bytes() == finished.weights()
    assert "dañado" not in finished.ok(*ENLACE, "verify", "checkpoints/model").text


def test_una_rama_mas_larga_hereda_el_tokenizador_y_sobrevive_a_sus_propias_salidas(
    finished: Clone,
) -> None:
    settings = f"{TINY} train.steps={STEPS + 40} train.decay=20"
    settings += " train.init_from=checkpoints/state train.init_state=all"
    parent = finished.manifest()
    finished.ok(*ENLACE, "params", "demo", "--set", settings)
    done = finished.dvc("repro", "pretrain")
    assert done.stages[-2:] == ["tokenize", "pretrain"]
    assert "tokenizador heredado de demo" in done.text
    assert f"empiezo en el paso {parent['state_step']}" in done.text
    child = finished.manifest()
    assert child["data"] == parent["data"]
    assert child["segments"][0]["from_step"] == parent["state_step"]
    assert child["origin"]["parent"]["identity"] == parent["identity"]
    # La carpeta de la que partía guarda ya al hijo; pedir lo mismo no es otra generación.
    finished.ok(*ENLACE, "params", "demo", "--set", settings)
    assert finished.dvc("repro", "pretrain").stages == []
    # Otro contenido en la misma ruta es otro entrenamiento, y sin resolverlo no se empieza.
    shutil.rmtree(finished.root / ".enlace/parents")
    assert "train.init_sha256 pide" in finished.refused(*TRAINER)
    finished.set_params(init_sha256="''")
    assert "make params" in finished.refused(*DVC, "repro", "pretrain")
