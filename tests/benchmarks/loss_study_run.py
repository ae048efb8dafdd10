"""Un entrenamiento del estudio: con el entrenador de ENLACE o con el Trainer de transformers.

Los dos leen los mismos shards, los mismos lotes en el mismo orden y la misma validación. Los
segundos son de CPU del proceso, que corre con un hilo.
"""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from enlace.config.load import resolve
from enlace.config.schema import Config
from enlace.data.streams import ShardStream, validation_batches
from enlace.errors import TrainingAbortedError
from tests.benchmarks.loss_study_plan import RECIPES, Job

ROOT = Path(__file__).parents[2]
WINDOWS = 8
"""En cuántos tramos iguales se apunta la pérdida media de entrenamiento."""


class Size(NamedTuple):
    """Un modelo y las secuencias de un paso."""

    vocab_size: int
    n_layer: int
    n_head: int
    n_kv_head: int
    d_model: int
    seq_len: int
    batch: int

    def values(self) -> dict[str, int]:
        """Las claves de `model`."""
        return {f"model.{key}": value for key, value in self._asdict().items() if key != "batch"}


SIZES = {
    "study": Size(4096, 4, 4, 2, 128, 256, batch=8),
    "small": Size(32768, 6, 8, 2, 256, 512, batch=4),
}
"""El del barrido, y el de `make bench WORK=small`, donde se confirma lo que diga."""
PROBE = Size(400, 1, 4, 2, 32, 32, batch=8)
"""Minúsculo: no mide nada, sirve para probar el banco de medida."""


class Meter:
    """Pérdidas y segundos de CPU de un entrenamiento, por partes."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.seconds = {"gradients": 0.0, "optimizer": 0.0, "validation": 0.0}
        self._start = 0.0
        self._step = 0.0, 0.0

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Cuenta lo que gasta `optimizer.step`."""
        optimizer.register_step_pre_hook(lambda *_: self.start())
        optimizer.register_step_post_hook(lambda *_: self.stop("optimizer"))

    def start(self) -> None:
        """Empieza una parte."""
        self._start = time.process_time()

    def stop(self, part: str) -> None:
        """Acaba la parte."""
        self.seconds[part] += time.process_time() - self._start

    def begin_step(self) -> None:
        """Empieza un paso de entrenamiento."""
        self._step = time.process_time(), self.seconds["optimizer"]

    def end_step(self) -> None:
        """Acaba el paso; lo que no ha gastado el optimizador va a los gradientes."""
        start, before = self._step
        spent = time.process_time() - start
        self.seconds["gradients"] += spent - (self.seconds["optimizer"] - before)


def study_config(job: Job, size: Size = SIZES["study"]) -> Config:
    """El run `small` de siempre con el modelo del estudio y la receta del trabajo."""
    recipe = {} if is_peer(job) else RECIPES[job.recipe]
    values: dict[str, Any] = size.values() | {
        f"train.{key}": value for key, value in recipe.items()
    }
    values |= {"train.lr": job.lr, "train.seed": job.seed, "train.steps": job.steps}
    values |= {"train.warmup": job.steps // 10, "train.decay": 0.3, "train.decay_shape": "sqrt"}
    values |= {"train.tokens_per_step": size.batch * size.seq_len}
    # Un pico no detiene el estudio: lo que diverge acaba con mala pérdida, y se apunta.
    values |= {"train.spike_window": 0, "train.max_spikes": 0}
    values |= {"hardware.micro_batch": size.batch, "data.evaluation.max_new_tokens": 1}
    return resolve("small", [f"{key}={value}" for key, value in values.items()], ROOT)


def is_peer(job: Job) -> bool:
    """Si entrena transformers."""
    return job.recipe.startswith("transformers")


def open_batches(shards: Path, config: Config) -> ShardStream:
    """El flujo de entrenamiento: el mismo para todos con la misma semilla."""
    model, seed = config.model, config.train.seed
    return ShardStream(shards, "train", model.seq_len, config.sequences_per_step, seed)


def run(shards: Path, job: Job, size: Size = SIZES["study"]) -> dict[str, Any]:
    """Entrena y valida; devuelve las cifras, en JSON.

    `val_loss` es None, y `failure` dice por qué, si el entrenamiento se detuvo o la pérdida dejó de
    ser un número.
    """
    config, meter = study_config(job, size), Meter()
    stream = open_batches(shards, config)
    failure, loss, tokens, parameters = "", math.nan, 0, 0
    try:
        train = _train_peer if is_peer(job) else _train_enlace
        model, validate = train(job, config, stream, meter)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        meter.start()
        loss, tokens = validate(_held_out(shards, config))
        meter.stop("validation")
    except TrainingAbortedError as error:
        failure = str(error)
    is_finite = math.isfinite(loss)
    return {
        **job._asdict(),
        "tokens": len(meter.losses) * config.train.tokens_per_step,
        "parameters": parameters,
        "val_loss": loss if is_finite else None,
        "val_tokens": tokens,
        "failure": failure if is_finite or failure else "la pérdida de validación no es finita",
        "train_losses": _windows(meter.losses, job.steps),
        "cpu_seconds": {part: round(value, 2) for part, value in meter.seconds.items()},
        "data": stream.fingerprint[:12],
    }


def _held_out(shards: Path, config: Config) -> Iterator[Any]:
    model, batch = config.model, config.hardware.micro_batch
    return validation_batches(shards, "val", model.seq_len, batch, 0, model.vocab_size)


def _windows(losses: list[float], steps: int) -> dict[str, float | None]:
    """La media de cada tramo, por el paso en que acaba; sin los tramos a los que no se llegó."""
    ends = [steps * (part + 1) // WINDOWS for part in range(WINDOWS)]
    means = {}
    for start, end in zip([0, *ends], ends, strict=False):
        if start < end <= len(losses):
            mean = sum(losses[start:end]) / (end - start)
            means[str(end)] = round(mean, 4) if math.isfinite(mean) else None
    return means


Trained = tuple[torch.nn.Module, Callable[[Iterator[Any]], tuple[float, int]]]


def _train_enlace(job: Job, config: Config, stream: ShardStream, meter: Meter) -> Trained:
    """La fábrica y el paso del entrenador."""
    from enlace.backends import open_device
    from enlace.evaluation.loss import evaluate_loss
    from enlace.train.trainer import build_training, train_step

    backend = open_device(config.hardware)
    training = build_training(config, backend)
    meter.watch(training.optimizer)
    for step in range(job.steps):
        meter.begin_step()
        meter.losses.append(train_step(training, stream.batch(step), step).loss)
        meter.end_step()

    def validate(batches: Iterator[Any]) -> tuple[float, int]:
        figures = evaluate_loss(training.model, batches, backend)
        return figures.loss, figures.tokens

    return training.model, validate


def _train_peer(job: Job, config: Config, stream: ShardStream, meter: Meter) -> Trained:
    from tests.benchmarks.loss_study_peer import train_qwen3, validate_qwen3

    model = train_qwen3(job, config, stream, meter)
    return model, lambda batches: validate_qwen3(model, batches)
