"""La medida: el ensayo del entrenamiento y lo que de él se deduce para el entrenamiento entero."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Literal

import numpy as np
import torch

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.data.index import INDEX_FILE
from enlace.data.streams import TokenStream, open_stream
from enlace.errors import DataError
from enlace.model.cost import flops_per_token
from enlace.preflight.health import Health
from enlace.preflight.measurement import DiskUse, Measurement, TimeUse
from enlace.preflight.rehearsal import Instruments, Rehearsal, Steps, rehearse
from enlace.preflight.synthetic import SyntheticStream
from enlace.train.retention import kept_checkpoints, save_count

_MODEL_BYTES_PER_PARAMETER = 4
_SLOW_PERCENTILE = 90


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


def forecast(config: Config, steps: Steps, loading: Loading, seconds: dict[str, float]) -> TimeUse:
    """Los tiempos y el total previsto: lectura, pasos, validaciones y checkpoints de `train`."""
    recipe = config.train
    evaluated_tokens = config.hardware.micro_batch * config.model.seq_len
    evaluation = seconds["evaluation_batch"] * recipe.eval_tokens / evaluated_tokens
    evaluations = math.ceil(recipe.steps / recipe.eval_every)
    extra = evaluations * evaluation + save_count(config.train) * seconds["save"]
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
