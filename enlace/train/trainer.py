"""El entrenamiento: una fábrica, un paso y un bucle.

`build_training` es la única forma de montar un entrenamiento y `train_step` la única de dar un
paso; el preflight mide con las mismas dos. `train` es el bucle entero.

La pérdida de un paso es Σ sobre todos sus objetivos / cuántos son, con una sola división: el
gradiente no depende de en cuántos micro-batches se reparta (salvo el redondeo), ni de que unos
tengan menos objetivos que otros.

Letras de forma: S secuencias de un paso, B de un micro-batch, T tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.data.streams import Batch, TokenStream, batch_hash
from enlace.errors import TrainingAbortedError, UnfinishedError
from enlace.model.loss import IGNORED
from enlace.model.transformer import Transformer
from enlace.process import StopSignal
from enlace.progress import Row, TrainLog
from enlace.train.artifact import Artifact
from enlace.train.devices import device_faults
from enlace.train.limits import Limits, Reason
from enlace.train.numerics import (
    abort_non_finite,
    check_loss_scale,
    check_spikes,
    count_step,
    describe_spike,
    is_finite_step,
)
from enlace.train.optim import build_optimizer, set_learning_rate
from enlace.train.resume import Run, open_run, prepare_saves, save_run
from enlace.train.retention import is_save_time
from enlace.train.rewind import rewind
from enlace.train.schedule import is_time, learning_rate
from enlace.train.spikes import Scores, SpikeWatch
from enlace.train.state import Training

Evaluator = Callable[[Transformer], Iterable[tuple[str, float]]]


class StepResult(NamedTuple):
    """Lo que ha pasado en un paso.

    `loss` es la entropía cruzada media por objetivo (nats, sin z-loss); `grad_norm`, la norma antes
    de recortar; `skipped`, si fp16 desbordó y los pesos no cambiaron; `spike`, cuánto se apartó de
    los pasos anteriores, si fue un pico; `tokens`, los leídos; `scale`, la escala de la pérdida
    después del paso (1 si no es fp16).
    """

    loss: float
    grad_norm: float
    lr: float
    skipped: bool
    spike: Scores | None
    tokens: int
    scale: float


class TrainResult(NamedTuple):
    """Cómo acaba un entrenamiento completo."""

    step: int
    tokens: int
    skipped: int
    evaluation: dict[str, float | None]
    checkpoint: Path | None


def build_training(config: Config, backend: Backend) -> Training:
    """Siembra el azar y monta modelo, optimizador y escala de pérdida en el dispositivo.

    Los pesos se inician en CPU: la misma semilla da los mismos en cualquier dispositivo.
    """
    torch.manual_seed(config.train.seed)
    hardware = config.hardware
    model = Transformer(
        config.model,
        backend.sdpa_backend,
        hardware.loss_chunk_rows,
        hardware.activation_checkpointing,
        config.data.document_mask,
        loss_chunk_columns=hardware.loss_chunk_columns,
    )
    model.to(backend.device).train()
    if hardware.compile:
        _compile_blocks(model)
    scaler = torch.amp.GradScaler(
        backend.device.type,
        init_scale=config.train.fp16_init_scale,
        growth_interval=config.train.fp16_growth_interval,
        enabled=backend.dtype == torch.float16,
    )
    optimizer = build_optimizer(model, config.train, backend)
    return Training(config, backend, model, optimizer, scaler, SpikeWatch(config.train))


def _compile_blocks(model: Transformer) -> None:
    """Compila cada bloque, que es donde está el trabajo; los nombres de los pesos no cambian.

    Todos los bloques comparten el mismo código compilado. La pérdida queda fuera a propósito: es
    un bucle de productos grandes sobre bloques de filas, en el que torch.compile no gana nada y
    que tardaría minutos en desenrollar.
    """
    for block in model.blocks:
        block.compile()


def train_step(training: Training, batch: Batch, step: int) -> StepResult:
    """Da el paso `step` (desde 0) con el batch de todo el paso, (S, T) en CPU.

    Un paso que no es finito no toca los pesos: en fp16 se salta y se cuenta, y en otra precisión
    detiene el entrenamiento. Un paso sin ningún objetivo tampoco los toca, y se cuenta aparte.
    La cuenta de pasos y la tasa de aprendizaje avanzan en todo caso (ver `Counters`).

    Raises:
        TrainingAbortedError: paso no finito en fp32 o bf16, escala de fp16 sin remedio o demasiados
            picos seguidos.
    """
    config, counters, scaler = training.config, training.counters, training.scaler
    lr = learning_rate(step, config.train)
    set_learning_rate(training.optimizer, lr)
    targets = int((batch.targets != IGNORED).sum())
    loss = grad_norm = 0.0
    updated, spike = False, None
    if targets:
        loss = accumulate(training, batch, targets)
        grad_norm, updated = _update(training, loss, step)
        spike = training.watch.observe(loss, grad_norm) if updated else None
        count_step(counters, step, not updated, spike is not None)
    counters.step = step + 1
    counters.tokens += batch.ids.numel()
    counters.optimizer_steps += updated
    counters.empty += not targets
    scale = scaler.get_scale()
    if scaler.is_enabled():
        check_loss_scale(step, counters, scale, config.train)
    if spike is not None:
        check_spikes(step, counters, spike, config.train)
    skipped = bool(targets) and not updated
    return StepResult(loss, grad_norm, lr, skipped, spike, batch.ids.numel(), scale)


def train(
    config: Config,
    backend: Backend,
    stream: TokenStream,
    run_dir: Path,
    *,
    evaluators: Sequence[Evaluator],
    log: TrainLog,
    origin: dict[str, Any],
    stop: StopSignal,
    parent: Artifact | None = None,
) -> TrainResult:
    """Entrena hasta `train.steps`, siguiendo por donde `run_dir` lo dejó.

    Args:
        config: la configuración resuelta.
        backend: el dispositivo, ya abierto.
        stream: los batches de entrenamiento.
        run_dir: carpeta del run, que este proceso ya tiene en exclusiva.
        evaluators: validaciones; la que cede `val_loss` decide cuál es el mejor checkpoint.
        log: el registro.
        origin: huellas JSON de dónde viene todo; `data` y `tokenizer` no pueden cambiar, y `code`
            y `code_normalized` abren un segmento nuevo si cambian.
        stop: petición de parar al acabar el paso.
        parent: de quién se parte, si `run_dir` aún no tiene ningún checkpoint.

    Raises:
        UnfinishedError: se pidió parar o se llegó a un límite; lo hecho está guardado.
        TrainingAbortedError: una regla numérica detuvo el entrenamiento.
        DeviceFailedError: la tarjeta falló o no queda memoria; lo guardado sigue intacto.
        CheckpointError: no se puede seguir desde lo que hay, o no se puede guardar.
    """
    recipe = config.train
    limits = Limits(recipe, run_dir, stop)
    with device_faults(run_dir):
        training = build_training(config, backend)
        run = open_run(training, stream, run_dir, log, origin, parent)
        prepare_saves(training, run)
    with device_faults(run_dir), run.writer as writer:
        while (step := training.counters.step) < recipe.steps:
            try:
                with log.clock.measure(recipe.tokens_per_step):
                    batch = run.stream.batch(step)
                    result = train_step(training, batch, step)
            except TrainingAbortedError as accident:
                rewind(training, run, accident)
                continue
            values: dict[str, float | None] = {}
            if evaluators and is_time(step, recipe.eval_every, recipe):
                values = run.evaluation = evaluate(training, evaluators)
            if is_time(step, recipe.log_every, recipe) or result.skipped or result.spike or values:
                _record(training, run, batch, result, values)
            if is_save_time(step, recipe):
                save_run(training, run)
            if (reason := limits.reached()) is not None and step + 1 < recipe.steps:
                save_run(training, run)
                writer.wait()
                raise _unfinished(training, reason)
            writer.check()
    counters = training.counters
    return TrainResult(
        counters.step, counters.tokens, counters.skipped, run.evaluation, run.checkpoint
    )


def evaluate(training: Training, evaluators: Iterable[Evaluator]) -> dict[str, float | None]:
    """Reúne las cifras de los evaluadores sin que el entrenamiento note que han pasado.

    Ni el azar ni el modo del modelo cambian: validar más a menudo no cambia las cuentas.
    """
    device = training.backend.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        values = {name: value for figures in evaluators for name, value in figures(training.model)}
    training.model.train()
    return dict(values)


def accumulate(training: Training, batch: Batch, targets: int) -> float:
    """Suma los gradientes de todos los micro-batches y devuelve la pérdida media del paso.

    Es la mitad de `train_step` que no toca los pesos; el preflight mide con ella los gradientes.

    Args:
        training: el entrenamiento, con los gradientes a None.
        batch: las S secuencias del paso.
        targets: objetivos no ignorados de todo el paso, el único divisor.
    """
    backend, rows = training.backend, training.config.hardware.micro_batch
    # fp64: la pérdida que se registra no debe depender de en cuántas sumas se parta.
    total = torch.zeros((), dtype=torch.float64, device=backend.device)
    parts = zip(batch.ids.split(rows), batch.targets.split(rows), strict=True)
    with backend.sdpa():
        for ids_BT, targets_BT in parts:
            with backend.autocast():
                sums = training.model.loss_sums(backend.place(ids_BT), backend.place(targets_BT))
            training.scaler.scale(sums.objective / targets).backward()
            total += sums.ce
    return total.item() / targets


def _update(training: Training, loss: float, step: int) -> tuple[float, bool]:
    """Deshace la escala, recorta y actualiza; devuelve la norma y si los pesos han cambiado."""
    optimizer, scaler = training.optimizer, training.scaler
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(
        training.model.parameters(), training.config.train.grad_clip
    ).item()
    finite = is_finite_step(loss, norm)
    if finite:
        scaler.step(optimizer)
    if scaler.is_enabled():
        scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if not finite and not scaler.is_enabled():
        raise abort_non_finite(step, training.counters, loss, norm)
    return norm, finite


def _record(
    training: Training,
    run: Run,
    batch: Batch,
    result: StepResult,
    values: Mapping[str, float | None],
) -> None:
    counters = training.counters
    if result.spike:
        run.log.say(f"aviso: pico en el paso {counters.step}: {describe_spike(result.spike)}")
    row = Row(
        step=counters.step,
        tokens=counters.tokens,
        loss=result.loss,
        lr=result.lr,
        grad_norm=result.grad_norm,
        scale=result.scale,
        skipped=counters.skipped,
        spikes=counters.spikes,
        tokens_per_second=run.log.clock.tokens_per_second,
        batch=batch_hash(batch),
        val_loss=values.get("val_loss"),
    )
    run.log.record(row, values)


def _unfinished(training: Training, reason: Reason) -> UnfinishedError:
    done, steps = training.counters.step, training.config.train.steps
    return UnfinishedError(
        f"parado por {reason.text} en el paso {done} de {steps}; está guardado, y la misma "
        "orden sigue desde ahí",
        exit_code=reason.exit_code,
    )
