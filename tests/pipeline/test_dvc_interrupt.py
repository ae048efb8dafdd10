"""Cortar un entrenamiento de todas las maneras: nada queda huérfano y la próxima llamada sigue."""

import os
import re
import signal
from collections.abc import Callable, Mapping

import pytest

from tests.pipeline.support_dvc import (
    DVC,
    STEPS,
    TRAINER,
    Clone,
    FirstRun,
    Started,
    light_environment,
)

pytestmark = pytest.mark.slow

Cut = Callable[[Started, int], None]
PRETRAIN = (*DVC, "repro", "pretrain")
# DVC lanza las etapas con $SHELL: bash se sustituye por la orden y sh (sin $SHELL) no, de modo que
# el padre del entrenador podría ser otro.
SHELLS: tuple[dict[str, str | None], ...] = ({"SHELL": "/bin/bash"}, {"SHELL": None})


def test_cortado_de_todas_las_maneras_acaba_como_el_seguido(
    prepared: Clone, first_run: FirstRun
) -> None:
    """Cada corte sigue donde lo dejó el anterior; los pesos finales son los del clon sin cortes.

    Las muertes con bash, y la del entrenador solo, están en `test_dvc_chaos.py`.
    """
    step = _cut(prepared, "Ctrl-C", 0, _interrupt, said="exited with 130")
    step = _cut(prepared, "se cierra la terminal", step, _hang_up)
    step = _cut(prepared, "kill -9 a dvc, sh", step, _to_dvc(signal.SIGKILL), SHELLS[1])
    step = _cut(prepared, "SIGTERM a dvc, sh", step, _to_dvc(signal.SIGTERM), SHELLS[1])
    done = prepared.dvc("repro", "pretrain")
    assert f"sigo desde el paso {step} " in done.text
    assert f"paso {STEPS}/{STEPS}" in done.text
    assert prepared.weights() == first_run.clone.weights()
    assert prepared.table() == first_run.clone.table()
    assert len(prepared.run_folders()) == 1


def test_matar_solo_a_make_no_deja_nada_corriendo(prepared: Clone) -> None:
    light_environment(prepared)
    step = 0
    for shell in SHELLS:
        # PIP=false: si make creyera que falta instalar algo, fallaría en vez de hacerlo.
        running = prepared.start("make", "PIP=false", "train", extra=shell)
        trainer = prepared.freeze_trainer(beyond=step)
        os.kill(running.pid, signal.SIGKILL)
        running.finish()
        os.kill(trainer, signal.SIGCONT)
        prepared.wait_until_idle()
        assert "pretrain" not in prepared.locked(), shell
        step = prepared.newest_step()
    done = prepared.ok("make", "PIP=false", "train")
    assert f"sigo desde el paso {step} " in done.text
    assert prepared.newest_step() == STEPS


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


def _cut(
    clone: Clone,
    name: str,
    step: int,
    cut: Cut,
    shell: Mapping[str, str | None] | None = None,
    said: str = "",
) -> int:
    """Empieza o sigue, corta, comprueba que nada queda a medias y devuelve dónde se quedó."""
    running = clone.start(*PRETRAIN, extra=shell)
    trainer = clone.freeze_trainer(beyond=step)
    cut(running, trainer)
    done = running.finish()
    clone.wait_until_idle()
    assert done.code != 0, name
    assert said in done.text, name
    assert "pretrain" not in clone.locked(), name
    assert not (clone.root / "checkpoints/model").exists(), name
    expected = f"sigo desde el paso {step} " if step else "paso 20/"
    assert expected in done.text, f"{name}: {done.text}"
    assert clone.newest_step() > step, name
    return clone.newest_step()


def _interrupt(running: Started, trainer: int) -> None:
    running.signal_group(signal.SIGINT)
    os.kill(trainer, signal.SIGCONT)


def _to_dvc(number: signal.Signals) -> Cut:
    """Solo a DVC: el entrenador se entera por la muerte de su padre."""

    def cut(running: Started, trainer: int) -> None:
        os.kill(running.pid, number)
        os.kill(trainer, signal.SIGCONT)

    return cut


def _hang_up(running: Started, trainer: int) -> None:
    """SIGHUP a todos y, cuando muere DVC, el SIGTERM de su muerte: dos señales, un guardado."""
    running.signal_group(signal.SIGHUP)
    os.kill(trainer, signal.SIGCONT)
