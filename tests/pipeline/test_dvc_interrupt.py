"""Otra orden mientras se entrena o a medias de entrenar. Los cortes están en test_dvc_chaos.py."""

import os
import re
import signal

import pytest

from tests.pipeline.support_dvc import (
    DVC,
    TRAINER,
    Clone,
)

pytestmark = pytest.mark.slow

PRETRAIN = (*DVC, "repro", "pretrain")


def test_un_segundo_entrenamiento_a_la_vez_se_rechaza_y_dice_quien_lo_tiene(
    prepared: Clone,
) -> None:
    running = prepared.start(*PRETRAIN)
    trainer = prepared.freeze_trainer()
    assert f"en uso por el proceso {trainer} de " in prepared.refused(*TRAINER)
    assert re.search(rf"PID {running.pid}\b", prepared.refused(*PRETRAIN))
    os.kill(trainer, signal.SIGCONT)
    assert running.finish().code == 0


def test_cambiar_el_micro_batch_de_un_run_a_medias_sigue_y_lo_anota(prepared: Clone) -> None:
    running = prepared.start(*PRETRAIN)
    os.kill(prepared.freeze_trainer(), signal.SIGKILL)
    assert running.finish().code != 0
    step = prepared.newest_step()
    prepared.set_params(micro_batch=4)
    done = prepared.dvc("repro", "pretrain")
    assert done.stages == ["preflight", "pretrain"]
    assert f"sigo desde el paso {step} " in done.text
    first, second = prepared.manifest()["segments"]
    assert first["from_step"] == 0
    assert second["from_step"] == step
    assert second["differences"] == {"hardware.micro_batch": [2, 4]}
