"""Muertes al azar bajo `dvc repro pretrain` y `make train`: nada se pierde ni queda huérfano."""

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from enlace.workspace.dvclock import rwlock_problem
from tests.pipeline.support_dvc import (
    DVC,
    ENLACE,
    STEPS,
    Clone,
    FirstRun,
    light_environment,
)
from tests.pipeline.support_process import PATIENCE_SECONDS, Started

pytestmark = pytest.mark.slow

SEED = 5
SAVING, GOING_ON, EARLY = "guardando", "recién seguido", "al arrancar"
MOMENTS = (SAVING, GOING_ON, EARLY)
EARLY_SECONDS = 4.0
GOING_ON_SECONDS = 0.05
_STEP = re.compile(r"step_(\d{8})")
_POLL_SECONDS = 0.002
KILL, TERM, INT, HUP = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP
REPRO = (*DVC, "repro", "pretrain")
# PIP=false: si make creyera que falta instalar algo, fallaría en vez de hacerlo.
MAKE = ("make", "PIP=false", "train")


# DVC lanza las etapas con $SHELL: bash se sustituye por la orden y sh (sin $SHELL) no, de modo que
# el padre del entrenador podría ser otro.
BASH: Mapping[str, str | None] = {"SHELL": "/bin/bash"}
SH: Mapping[str, str | None] = {"SHELL": None}


class Way(NamedTuple):
    """Qué se lanza, a quién se mata, con qué señal y con qué shell."""

    command: tuple[str, ...]
    victim: str
    number: signal.Signals
    shell: Mapping[str, str | None] = BASH


WAYS = (
    Way(REPRO, "dvc", KILL),
    Way(MAKE, "make", KILL),
    Way(REPRO, "entrenador", KILL),
    Way(REPRO, "dvc", TERM, SH),
    Way(MAKE, "grupo", INT),
    Way(REPRO, "entrenador", TERM),
    # Cerrar la terminal: SIGHUP a todos y, cuando muere DVC, el SIGTERM de su muerte.
    Way(REPRO, "grupo", HUP),
    Way(REPRO, "dvc", KILL, SH),
    Way(REPRO, "grupo", INT),
    Way(REPRO, "grupo", KILL),
)


def test_una_muerte_de_cada_manera_bajo_dvc_y_make(prepared: Clone, first_run: FirstRun) -> None:
    light_environment(prepared)
    rng = random.Random(SEED)
    step = 0
    for number, way in enumerate(WAYS):
        moment = MOMENTS[number % len(MOMENTS)]
        name = f"muerte {number}: {way.number.name} a {way.victim}, {moment}"
        if rwlock_problem(prepared.root):
            prepared.ok(*ENLACE, "unlock")
        running = prepared.start(*way.command, extra=way.shell)
        wait_for_moment(prepared, running, moment, step, rng)
        strike(prepared, running, way)
        done = running.finish()
        prepared.wait_until_idle()
        assert done.code != 0, name
        if way.command == REPRO and way.number == INT and moment != EARLY:
            assert "exited with 130" in done.text, name
        assert "pretrain" not in prepared.locked(), name
        assert not (prepared.root / "checkpoints/model").exists(), name
        reached = prepared.newest_step()
        assert step <= reached < STEPS, f"{name}: del paso {step} al {reached}\n{done.text}"
        step = reached
    if rwlock_problem(prepared.root):
        prepared.ok(*ENLACE, "unlock")
    done = prepared.dvc("repro", "pretrain")
    assert f"sigo desde el paso {step} " in done.text
    assert prepared.weights() == first_run.clone.weights()
    assert prepared.table() == first_run.clone.table()
    (folder,) = prepared.run_folders()
    for place in (folder, prepared.root / "checkpoints", prepared.root / "reports"):
        assert not list(place.rglob(".tmp-*")), place


def test_matar_a_dvc_mientras_el_entrenador_arranca_no_deja_huerfano(prepared: Clone) -> None:
    """El entrenador tarda segundos en importar torch, y aún no ha pedido morir con su padre."""
    running = prepared.start(*REPRO)
    wait_for(lambda: bool(prepared.trainers()))
    os.kill(running.pid, signal.SIGKILL)
    running.finish()
    prepared.wait_until_idle()
    assert prepared.newest_step() == 0


def wait_for_moment(
    clone: Clone, running: Started, moment: str, step: int, rng: random.Random
) -> None:
    """Espera el momento de matar a quien lleva `step` pasos guardados."""
    if moment == EARLY:
        time.sleep(rng.random() * EARLY_SECONDS)
    elif moment == GOING_ON:
        said = f"sigo desde el paso {step} " if step else "run "
        wait_for(lambda: said in running.output.read_text(encoding="utf-8", errors="replace"))
        time.sleep(rng.random() * GOING_ON_SECONDS)
    else:
        wait_for(lambda: _newest_started(clone) > step)


def _newest_started(clone: Clone) -> int:
    """El paso más avanzado que se está guardando o ya se ha guardado; 0 si no hay."""
    folders = clone.run_folders()
    names = [path.name for path in (folders[-1].glob("checkpoints/*") if folders else ())]
    return max((int(match[1]) for name in names if (match := _STEP.search(name))), default=0)


def wait_for(ready: Callable[[], bool]) -> None:
    """Espera a que algo sea verdad."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < limit, "no llega el momento de matar"
        time.sleep(_POLL_SECONDS)


def strike(clone: Clone, running: Started, way: Way) -> None:
    """Mata a quien toca, con el entrenador congelado para que no acabe mientras se le busca."""
    trainers = clone.trainers()
    for pid in trainers:
        _send(pid, signal.SIGSTOP)
    if way.victim == "grupo":
        running.signal_group(way.number)
    elif way.victim == "entrenador" and trainers:
        for pid in trainers:
            _send(pid, way.number)
    else:
        os.kill(running.pid, way.number)
    for pid in trainers:
        _send(pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
