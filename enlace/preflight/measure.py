"""La medida: el entrenamiento de verdad, unos pocos pasos, con lotes inventados.

Monta con `build_training`, avanza con `train_step`, guarda con `save_run` y reanuda con `open_run`:
las mismas funciones que usa `train`. Lo que aquí cabe y funciona, cabe y funciona allí.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import disk_usage
from typing import Literal, Self

import numpy as np
import torch
from rich.console import Console

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.data.index import INDEX_FILE
from enlace.data.streams import TokenStream, open_stream
from enlace.errors import DataError
from enlace.model.cost import flops_per_token
from enlace.preflight.energy import Card, EnergyMeter
from enlace.preflight.health import Health
from enlace.preflight.measurement import CardState, DiskUse, Measurement, TimeUse
from enlace.preflight.memory import MemoryGauge, open_gauge
from enlace.preflight.probes import free_memory
from enlace.preflight.synthetic import SyntheticStream, synthetic_batch
from enlace.progress import TrainLog
from enlace.train.resume import open_run, reserve_saves, save_run
from enlace.train.retention import kept_checkpoints, saved_steps
from enlace.train.schedule import is_time
from enlace.train.state import Training
from enlace.train.trainer import StepResult, build_training, train_step

_MODEL_BYTES_PER_PARAMETER = 4
_SLOW_PERCENTILE = 90


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


@dataclass(frozen=True)
class Loading:
    """Cuánto se tarda en leer el batch de un paso, y de dónde."""

    seconds: float
    source: Literal["shards", "datos inventados"]


def measure(
    config: Config,
    backend: Backend,
    scratch: Path,
    tools: Instruments,
    shards: Path | None = None,
    health: Health | None = None,
) -> Measurement:
    """Mide un entrenamiento de `config` en este proceso.

    Hace un paso de calentamiento y `hardware.preflight.steps` medidos, una validación, un
    checkpoint y, ya sin el primer modelo en memoria, una reanudación con un paso más. El segundo
    micro-batch de un paso, con los gradientes ya en memoria, es el pico: con acumulación 1 se
    añade un paso de dos, que no se cronometra.

    Args:
        config: la configuración; su `train.lr` no cambia nada de lo que se mide.
        backend: el dispositivo, ya abierto.
        scratch: carpeta vacía en el disco de los checkpoints; lo que queda en ella se puede borrar.
        tools: los instrumentos, abiertos antes de ocupar memoria.
        shards: carpeta de shards de la que leer para medir la lectura, si los hay.
        health: la salud de fp16, ya medida.

    Raises:
        TrainingAbortedError: un paso no es finito, o fp16 no encuentra escala.
        CheckpointError: no se pudo guardar o volver a cargar.
        torch.OutOfMemoryError, MemoryError: no cabe.
    """
    rehearsal = rehearse(config, backend, scratch, tools)
    steps, parameters = rehearsal.steps, rehearsal.parameters
    timing = forecast(config, steps, measure_loading(config, shards), tools.watch.seconds)
    tokens = config.train.tokens_per_step
    return Measurement(
        device=backend.description.name,
        torch_version=torch.__version__,
        dtype=config.hardware.dtype,
        sdpa_backend=backend.sdpa_backend,
        parameters=parameters,
        flops_per_token=flops_per_token(config.model),
        tokens_per_parameter=config.train.steps * tokens / parameters,
        tokens_per_step=tokens,
        micro_batch=config.hardware.micro_batch,
        accumulation=config.accumulation,
        tokens_per_second=tokens / (timing.step_median + timing.loading),
        slow_tokens_per_second=tokens / (timing.step_p90 + timing.loading),
        first_loss=_finite(steps.results[0].loss),
        last_loss=_finite(steps.results[-1].loss),
        time=timing,
        memory=tools.gauge.read(),
        disk=disk_use(config, rehearsal, scratch, shards),
        energy=tools.meter.use(timing.total_median, config.hardware.preflight.kwh_price),
        card=steps.card,
        health=health,
        warnings=backend.warnings,
    )


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


def measure_loading(config: Config, shards: Path | None) -> Loading:
    """La mediana de leer el batch de un paso: de los shards de verdad si sirven, o inventado."""
    stream: TokenStream = SyntheticStream(config)
    source: Literal["shards", "datos inventados"] = "datos inventados"
    if shards is not None and shards.is_dir():
        try:
            stream = open_stream(
                shards,
                "train",
                config.model.seq_len,
                config.sequences_per_step,
                config.train.seed,
                config.model.vocab_size,
            )
            source = "shards"
        except DataError:
            pass  # son de otro run: el entrenador dirá por qué no sirven
    seconds = []
    for step in range(1 + config.hardware.preflight.steps):
        started = time.perf_counter()
        stream.batch(step)
        seconds.append(time.perf_counter() - started)
    # El primero ordena la época entera: no es lo que tarda un paso.
    return Loading(float(np.median(seconds[1:])), source)


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
        training.model.loss_sums(batch.ids.to(backend.device), batch.targets.to(backend.device))
    training.model.train()


def forecast(config: Config, steps: Steps, loading: Loading, seconds: dict[str, float]) -> TimeUse:
    """Los tiempos y el total previsto: lectura, pasos, validaciones y checkpoints de `train`."""
    recipe = config.train
    evaluated_tokens = config.hardware.micro_batch * config.model.seq_len
    evaluation = seconds["evaluation_batch"] * recipe.eval_tokens / evaluated_tokens
    evaluations = sum(is_time(step, recipe.eval_every, recipe) for step in range(recipe.steps))
    extra = evaluations * evaluation + len(saved_steps(config)) * seconds["save"]
    median = float(np.median(steps.seconds))
    slow = float(np.percentile(steps.seconds, _SLOW_PERCENTILE))
    return TimeUse(
        build=seconds["build"],
        warmup=steps.warmup,
        steps=steps.seconds,
        step_median=median,
        step_p90=slow,
        loading=loading.seconds,
        loading_from=loading.source,
        evaluation=evaluation,
        save=seconds["save"],
        load=seconds["load"],
        total_median=recipe.steps * (median + loading.seconds) + extra,
        total_p90=recipe.steps * (slow + loading.seconds) + extra,
    )


def disk_use(config: Config, rehearsal: Rehearsal, scratch: Path, shards: Path | None) -> DiskUse:
    """Los checkpoints que conviven; al final, el modelo y el estado exportados; y los shards."""
    checkpoint = rehearsal.checkpoint_bytes
    exported = checkpoint + _MODEL_BYTES_PER_PARAMETER * rehearsal.parameters
    pending = 0 if shards is not None and (shards / INDEX_FILE).is_file() else shards_bytes(config)
    return DiskUse(
        checkpoint_bytes=checkpoint,
        shards_bytes=pending,
        needed_bytes=kept_checkpoints(config) * checkpoint + exported + pending,
        free_bytes=disk_usage(scratch).free,
    )


def shards_bytes(config: Config) -> int:
    """Lo que ocupan los tokens del entrenamiento si ninguno se repite: un byte o dos por id."""
    width = 1 if config.data.tokenizer.kind == "byte" else 2
    return width * config.train.steps * config.train.tokens_per_step


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
