"""Volver atrás ante un accidente numérico es no haber tenido nunca aquellos lotes."""

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.errors import TrainingAbortedError, UnfinishedError
from enlace.lineage.tree import lineage_tree, render
from enlace.train.artifact import open_artifact
from tests.support import make_config
from tests.train.accidents import PoisonedStream, poisoned, without
from tests.train.checkpoints import steps_in
from tests.train.runs import (
    deterministic_rows,
    final_state,
    final_tensors,
    run_training,
)

# 16 pasos, un checkpoint cada 4, y el lote 10 y los de después envenenados: se vuelve al paso 8.
BASE: dict[str, Any] = {
    "train.steps": 16,
    "train.save_every": 4,
    "train.eval_every": 4,
    "train.rewind": True,
    "model.dropout": 0.1,
    "hardware.threads": 1,
}
KINDS: dict[str, tuple[dict[str, Any], float, tuple[int, ...]]] = {
    "no finito": ({}, math.nan, (10,)),
    "pico": ({}, 50.0, (10, 11)),
    "fp16": ({"hardware.dtype": "fp16", "train.fp16_max_skips": 2}, math.inf, (10, 11)),
}


def rewound(
    folder: Path,
    kind: str = "no finito",
    stops: tuple[int, ...] = (),
    poison: tuple[int, ...] | None = None,
    **more: Any,
) -> str:
    """Entrena con el accidente de `kind`, parando durante los lotes `stops`, y da lo escrito."""
    changes, factor, batches = KINDS[kind]
    config = make_config(BASE | changes | {f"train.{key}": value for key, value in more.items()})
    output = io.StringIO()
    with poisoned(factor):
        for stop in stops:
            stream = PoisonedStream(config, poison or batches, stop_at=stop)
            with pytest.raises(UnfinishedError):
                run_training(folder, config, stream=stream, output=output)
        run_training(
            folder, config, stream=PoisonedStream(config, poison or batches), output=output
        )
    return output.getvalue()


def assert_same_tensors(found_dir: Path, expected_dir: Path) -> None:
    expected, found = final_tensors(expected_dir), final_tensors(found_dir)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "fp16" else pytest.mark.slow) for kind in KINDS],
)
def test_el_resultado_es_el_de_no_tener_esos_lotes(kind: str, tmp_path: Path) -> None:
    changes, _, poison = KINDS[kind]
    skipped = (9, *poison)  # el anterior también: train.rewind_skip = 1
    text = rewound(tmp_path / "vuelto", kind)
    assert f"vuelvo del paso {poison[-1]} al 8" in text
    config = make_config(BASE | changes)
    run_training(tmp_path / "sin", config, stream=PoisonedStream(config, removed=skipped))
    assert_same_tensors(tmp_path / "vuelto", tmp_path / "sin")
    assert deterministic_rows(tmp_path / "vuelto") == deterministic_rows(tmp_path / "sin")
    found, expected = final_state(tmp_path / "vuelto"), final_state(tmp_path / "sin")
    keys = ("segments", "stream", "files")
    assert without(found, *keys) == without(expected, *keys)
    assert found["stream"]["skipped"] == list(skipped)
    assert found["stream"]["step"] == 16 + len(skipped)
    (segment,) = found["segments"]
    (rewind,) = segment["rewinds"]
    assert (rewind["at_step"], rewind["to_step"]) == (poison[-1], 8)
    assert rewind["skipped_batches"] == list(skipped)


# Antes del accidente (un checkpoint que no es periódico), durante la racha, y tras volver, dos
# veces: el proceso que sigue no sabe que ya se volvió y repite el accidente.
@pytest.mark.slow
@pytest.mark.parametrize("stops", [(9,), (10,), (9, 10, 12), (13,), (12, 15)], ids=str)
def test_cortado_en_cualquier_momento_es_lo_mismo(stops: tuple[int, ...], tmp_path: Path) -> None:
    rewound(tmp_path / "cortado", "pico", stops)
    rewound(tmp_path / "seguido", "pico")
    assert_same_tensors(tmp_path / "cortado", tmp_path / "seguido")
    assert deterministic_rows(tmp_path / "cortado") == deterministic_rows(tmp_path / "seguido")
    assert final_state(tmp_path / "cortado") == final_state(tmp_path / "seguido")


def test_la_vuelta_queda_en_la_procedencia(tmp_path: Path) -> None:
    rewound(tmp_path)
    artifact = open_artifact(tmp_path)
    assert [len(segment.rewinds) for segment in artifact.history.segments] == [1]
    tree = "\n".join(render(lineage_tree(artifact)))
    assert "vuelta atrás del paso 10 al 8" in tree


def test_un_checkpoint_de_la_racha_no_sobrevive(tmp_path: Path) -> None:
    # Cada 2 pasos: el del paso 12 se guarda en plena racha (lotes 11 y 12) y se abandona.
    text = rewound(tmp_path, "pico", poison=(11, 12), save_every=2, eval_every=2, keep_last=8)
    assert "vuelvo del paso 12 al 10" in text
    assert steps_in(tmp_path) == [2, 4, 6, 8, 10, 12, 14, 16]
    rows = deterministic_rows(tmp_path)
    assert [row[0] for row in rows[1:]] == [str(step) for step in range(1, 17)]


@pytest.mark.slow
def test_siempre_queda_a_donde_volver(tmp_path: Path) -> None:
    # keep_last = 1: sin la regla de retención, al verse el accidente solo quedaría el del paso 10.
    text = rewound(tmp_path, "pico", poison=(9, 10), save_every=2, keep_last=1, fp16_max_skips=1)
    assert "vuelvo del paso 10 al 8" in text


def test_el_mismo_accidente_con_otros_lotes_para(tmp_path: Path) -> None:
    with pytest.raises(TrainingAbortedError, match=r"se repite con otros lotes.*train\.lr"):
        rewound(tmp_path, poison=(10, 11))


@pytest.mark.slow
def test_hay_un_maximo_de_vueltas(tmp_path: Path) -> None:
    rewound(tmp_path / "dos", poison=(6, 12), max_rewinds=2)
    assert len(final_state(tmp_path / "dos")["segments"][0]["rewinds"]) == 2
    with pytest.raises(TrainingAbortedError, match=r"ya se ha vuelto atrás 1 veces"):
        rewound(tmp_path / "una", poison=(6, 12), max_rewinds=1)


def test_sin_nada_a_lo_que_volver_se_dice(tmp_path: Path) -> None:
    with pytest.raises(TrainingAbortedError, match="no queda ningún checkpoint del paso 2"):
        rewound(tmp_path, poison=(3,))


@pytest.mark.slow
def test_se_puede_activar_despues_del_accidente(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(TrainingAbortedError, match=r"train\.rewind: true"):
            rewound(tmp_path / "luego", rewind=False)
    rewound(tmp_path / "luego")
    rewound(tmp_path / "antes")
    assert_same_tensors(tmp_path / "luego", tmp_path / "antes")


@pytest.mark.slow
def test_un_checkpoint_danado_no_sirve_para_volver(tmp_path: Path) -> None:
    config = make_config(BASE | {"train.keep_last": 9})
    with poisoned(math.nan), pytest.raises(UnfinishedError):
        run_training(tmp_path, config, stream=PoisonedStream(config, (10,), stop_at=9))
    weights = tmp_path / "checkpoints/step_00000008/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    text = rewound(tmp_path, keep_last=9)
    assert "step_00000008/model.safetensors está dañado" in text
    assert "vuelvo del paso 10 al 4" in text
