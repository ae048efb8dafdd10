"""El ensayo: montar, entrenar unos pasos, validar, guardar y reanudar, cada cosa cronometrada.

Monta con `build_training`, avanza con `train_step`, guarda con `save_run` y reanuda con `open_run`:
las mismas funciones que usa `train`. Lo que aquí cabe y funciona, cabe y funciona allí.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch
from rich.console import Console

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.preflight.energy import Card, EnergyMeter
from enlace.preflight.measurement import CardState
from enlace.preflight.memory import MemoryGauge, open_gauge
from enlace.preflight.probes import free_memory
from enlace.preflight.synthetic import SyntheticStream, synthetic_batch
from enlace.progress import TrainLog
from enlace.train.resume import open_run, reserve_saves, save_run
from enlace.train.state import Training
from enlace.train.trainer import StepResult, build_training, train_step


@dataclass
class Stopwatch:
    """Segundos de reloj de cada tramo, con el dispositivo sincronizado en los dos extremos."""

    backend: Backend
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Mide el bloque y lo guarda con ese nombre."""
        self.backend.synchronize()
        started = time.perf_counter()
        yield
        self.backend.synchronize()
        self.seconds[name] = time.perf_counter() - started


@dataclass(frozen=True)
class Instruments:
    """Con qué se mide: la memoria, el reloj y, si NVML contesta, la energía."""

    gauge: MemoryGauge
    watch: Stopwatch
    meter: EnergyMeter

    @classmethod
    def open(cls, backend: Backend, card: Card | None = None, free: int | None = None) -> Self:
        """Los abre; `free` es la memoria libre antes de que torch tocara la GPU."""
        return cls(open_gauge(backend, free), Stopwatch(backend), EnergyMeter(card))


@dataclass(frozen=True)
class Steps:
    """Los pasos dados: el de calentamiento, que no entra en los tiempos, y los medidos."""

    warmup: float
    seconds: tuple[float, ...]
    results: tuple[StepResult, ...]
    """De todos, el de calentamiento primero."""
    card: CardState | None
    """La tarjeta al acabarlos, aún caliente."""


@dataclass(frozen=True)
class Rehearsal:
    """Lo que deja el ensayo, además de lo que anotan los instrumentos."""

    steps: Steps
    parameters: int
    checkpoint_bytes: int


def rehearse(config: Config, backend: Backend, scratch: Path, tools: Instruments) -> Rehearsal:
    """Hace todo lo que hará `train`, de montar a reanudar, cada cosa en su fase de memoria."""
    gauge, watch, stream = tools.gauge, tools.watch, SyntheticStream(config)
    log = _quiet_log(config, scratch)
    with gauge.phase("montaje"), watch.measure("build"):
        training = build_training(config, backend)
        run = open_run(training, stream, scratch, log, {})
        reserve_saves(training, run)
    steps = run_steps(training, stream, config.hardware.preflight.steps, tools)
    if config.accumulation == 1:
        with gauge.phase("dos micro-batches"):
            step = training.counters.step
            train_step(training, synthetic_batch(config, 2 * config.sequences_per_step, step), step)
    with gauge.phase("validación"):
        _validate(training)
        with watch.measure("evaluation_batch"):
            _validate(training)
    with gauge.phase("checkpoint"), watch.measure("save"):
        save_run(training, run)
        run.writer.wait()
    assert run.checkpoint is not None
    checkpoint_bytes = sum(file.stat().st_size for file in run.checkpoint.iterdir())
    parameters = training.model.num_parameters()
    # Reanudar no puede apoyarse en el primer modelo: en la práctica es otro proceso.
    del training, run
    free_memory(backend)
    with gauge.phase("reanudación"):
        with watch.measure("load"):
            resumed = build_training(config, backend)
            open_run(resumed, stream, scratch, log, {})
        train_step(resumed, stream.batch(resumed.counters.step), resumed.counters.step)
    return Rehearsal(steps, parameters, checkpoint_bytes)


def run_steps(training: Training, stream: SyntheticStream, count: int, tools: Instruments) -> Steps:
    """Da `1 + count` pasos desde el 0 y mide cada uno; inventar el lote queda fuera del tiempo."""
    gauge, watch, meter = tools.gauge, tools.watch, tools.meter
    seconds, results = [], []

    def advance(step: int) -> None:
        batch = stream.batch(step)
        with watch.measure("step"):
            results.append(train_step(training, batch, step))
        seconds.append(watch.seconds["step"])

    with gauge.phase("primer paso"):
        advance(0)
    with gauge.phase("pasos"), meter:
        for step in range(1, 1 + count):
            advance(step)
            meter.sample()
        card = None if meter.card is None else meter.card.state()
    return Steps(seconds[0], tuple(seconds[1:]), tuple(results), card)


def _quiet_log(config: Config, scratch: Path) -> TrainLog:
    return TrainLog(
        scratch,
        steps=config.train.steps,
        tokens_per_step=config.train.tokens_per_step,
        console=Console(quiet=True, force_terminal=False),
    )


def _validate(training: Training) -> None:
    """Un lote de validación de un micro-batch, como los que mide la evaluación."""
    backend, config = training.backend, training.config
    batch = synthetic_batch(config, config.hardware.micro_batch, 0)
    training.model.eval()
    with torch.no_grad(), backend.sdpa(), backend.autocast():
        training.model.loss_sums(backend.place(batch.ids), backend.place(batch.targets))
    training.model.train()
