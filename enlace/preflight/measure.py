"""La medida: el entrenamiento de verdad, unos pocos pasos, con lotes inventados.

Monta con `build_training`, avanza con `train_step`, guarda con `save_run` y reanuda con `open_run`:
las mismas funciones que usa `train`. Lo que aquí cabe y funciona, cabe y funciona allí.
"""

import gc
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import disk_usage

import numpy as np
import torch
from rich.console import Console

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.model.cost import flops_per_token
from enlace.preflight.measurement import DiskUse, LossScaling, Measurement, TimeUse
from enlace.preflight.memory import open_gauge
from enlace.preflight.synthetic import SyntheticStream, synthetic_batch
from enlace.progress import TrainLog
from enlace.train.checkpoint import is_milestone
from enlace.train.resume import open_run, save_run
from enlace.train.state import Training
from enlace.train.trainer import StepResult, build_training, is_time, train_step

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
class Steps:
    """Los pasos dados: el de calentamiento, que no entra en los tiempos, y los medidos."""

    warmup: float
    seconds: tuple[float, ...]
    results: tuple[StepResult, ...]
    """De todos, el de calentamiento primero."""


def measure(config: Config, backend: Backend, scratch: Path) -> Measurement:
    """Mide un entrenamiento de `config` en este proceso.

    Hace un paso de calentamiento y `hardware.preflight.steps` medidos, una validación, un
    checkpoint y, ya sin el primer modelo en memoria, una reanudación con un paso más.

    Args:
        config: la configuración; su `train.lr` no cambia nada de lo que se mide.
        backend: el dispositivo, ya abierto.
        scratch: carpeta vacía en el disco de los checkpoints; lo que queda en ella se puede borrar.

    Raises:
        TrainingAbortedError: un paso no es finito, o fp16 no encuentra escala.
        CheckpointError: no se pudo guardar o volver a cargar.
        torch.OutOfMemoryError, MemoryError: no cabe.
    """
    gauge, watch, stream = open_gauge(backend), Stopwatch(backend), SyntheticStream(config)
    log = TrainLog(
        scratch,
        steps=config.train.steps,
        tokens_per_step=config.train.tokens_per_step,
        console=Console(quiet=True, force_terminal=False),
    )
    with watch.measure("build"):
        training = build_training(config, backend)
    run = open_run(training, stream, scratch, log, {})
    steps = run_steps(training, stream, config.hardware.preflight.steps)
    _validate(training)
    with watch.measure("evaluation_batch"):
        _validate(training)
    with watch.measure("save"):
        save_run(training, run)
    assert run.checkpoint is not None
    checkpoint_bytes = sum(file.stat().st_size for file in run.checkpoint.iterdir())
    parameters = training.model.num_parameters()
    # Reanudar no puede apoyarse en el primer modelo: en la práctica es otro proceso.
    del training, run
    gc.collect()
    with watch.measure("load"):
        resumed = build_training(config, backend)
        open_run(resumed, stream, scratch, log, {})
    train_step(resumed, stream.batch(resumed.counters.step), resumed.counters.step)
    timing = _timing(config, steps, watch.seconds)
    return Measurement(
        device=backend.description.name,
        torch_version=torch.__version__,
        dtype=config.hardware.dtype,
        sdpa_backend=backend.sdpa_backend,
        parameters=parameters,
        flops_per_token=flops_per_token(config.model),
        tokens_per_parameter=config.train.steps * config.train.tokens_per_step / parameters,
        tokens_per_step=config.train.tokens_per_step,
        micro_batch=config.hardware.micro_batch,
        accumulation=config.accumulation,
        tokens_per_second=config.train.tokens_per_step / timing.step_median,
        first_loss=_finite(steps.results[0].loss),
        last_loss=_finite(steps.results[-1].loss),
        time=timing,
        memory=gauge.read(),
        disk=_disk(config, parameters, checkpoint_bytes, scratch),
        loss_scaling=loss_scaling(steps.results) if config.hardware.dtype == "fp16" else None,
    )


def run_steps(training: Training, stream: SyntheticStream, count: int) -> Steps:
    """Da `1 + count` pasos desde el 0 y mide cada uno; inventar el lote queda fuera del tiempo."""
    watch = Stopwatch(training.backend)
    seconds, results = [], []
    for step in range(1 + count):
        batch = stream.batch(step)
        with watch.measure("step"):
            results.append(train_step(training, batch, step))
        seconds.append(watch.seconds["step"])
    return Steps(seconds[0], tuple(seconds[1:]), tuple(results))


def _validate(training: Training) -> None:
    """Un lote de validación de un micro-batch, como los que mide la evaluación."""
    backend, config = training.backend, training.config
    batch = synthetic_batch(config, config.hardware.micro_batch, 0)
    training.model.eval()
    with torch.no_grad(), backend.sdpa(), backend.autocast():
        training.model.loss_sums(batch.ids.to(backend.device), batch.targets.to(backend.device))
    training.model.train()


def _timing(config: Config, steps: Steps, seconds: dict[str, float]) -> TimeUse:
    """Los tiempos y el total previsto: pasos, validaciones y checkpoints del bucle de `train`."""
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
        evaluation=evaluation,
        save=seconds["save"],
        load=seconds["load"],
        total_median=recipe.steps * median + extra,
        total_p90=recipe.steps * slow + extra,
    )


def saved_steps(config: Config) -> list[int]:
    """Los pasos tras los que el bucle guarda un checkpoint."""
    recipe = config.train
    return [
        step + 1
        for step in range(recipe.steps)
        if is_time(step, recipe.save_every, recipe) or is_milestone(step + 1, recipe)
    ]


def kept_checkpoints(config: Config) -> int:
    """Cuántos checkpoints llegan a convivir: los conservados y el que se está escribiendo."""
    saved = saved_steps(config)
    milestones = sum(is_milestone(step, config.train) for step in saved)
    recent_and_best = min(config.train.keep_last + 1, len(saved) - milestones)
    return milestones + recent_and_best + 1


def _disk(config: Config, parameters: int, checkpoint_bytes: int, scratch: Path) -> DiskUse:
    """Los checkpoints que conviven y, al final, el modelo y el estado exportados."""
    exported = checkpoint_bytes + _MODEL_BYTES_PER_PARAMETER * parameters
    return DiskUse(
        checkpoint_bytes=checkpoint_bytes,
        needed_bytes=kept_checkpoints(config) * checkpoint_bytes + exported,
        free_bytes=disk_usage(scratch).free,
    )


def loss_scaling(results: Sequence[StepResult]) -> LossScaling:
    """Separa los saltos iniciales, con los que la escala busca su nivel, de los demás."""
    skipped = [result.skipped for result in results]
    calibration = skipped.index(False) if False in skipped else len(skipped)
    return LossScaling(
        calibration_skips=calibration,
        steps=len(skipped) - calibration,
        skips=sum(skipped[calibration:]),
        final_scale=results[-1].scale,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
