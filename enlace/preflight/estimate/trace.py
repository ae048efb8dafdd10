"""El paso del entrenador, ejecutado con tensores que tienen forma pero no datos.

`trace_training` llama a `build_training` y a `train_step`, los mismos que entrenan, bajo
`FakeTensorMode`: cada operación da una salida con su forma, su dtype y su *storage*, sin calcular
nada ni ocupar memoria. Un `Recorder` apunta lo que pasa; de ahí salen la memoria y el tiempo.

Letras de forma: S secuencias de un paso, T tokens.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from enlace.backends import Backend, DeviceDescription, expands_kv
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.preflight.estimate.lens import StepLens
from enlace.preflight.estimate.objects import ObjectRecorder
from enlace.preflight.estimate.recorder import EVALUATION, OPTIMIZER, Recorder, Trace
from enlace.train.state import Training
from enlace.train.trainer import build_training, train_step

TRACED_STEPS = 2
"""El segundo ya tiene el estado del optimizador, que nace al acabar el primero."""
TRACED_MICRO_BATCHES = 2
"""Desde el segundo todos son iguales: los gradientes ya están."""
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def trace_training(config: Config) -> Trace:
    """Traza el entrenamiento de `config`: uno o dos pasos y una validación de un micro-batch.

    No hace falta tener el dispositivo. `torch.compile` no se traza: se ven las operaciones sueltas.

    Args:
        config: la configuración.
    """
    kernel = config.hardware.sdpa_backend if config.hardware.device == "cuda" else None
    config, backend = _traceable(config)
    with FakeTensorMode() as fake:
        # El modo recuerda cada tensor nuevo, y `Module.to` no sabe mover los recordados.
        fake.fake_tensor_converter.set_tensor_memo = lambda *_: None  # type: ignore[method-assign]
        training = build_training(config, backend)
        recorder = (ObjectRecorder if kernel is None else Recorder)(config.train.fp16_init_scale)
        for tensor in (*training.model.parameters(), *training.model.buffers()):
            recorder.born(tensor)
        batch = _empty_batch(recorder, config, on_device=kernel is None)
        with StepLens(recorder, kernel), recorder:
            _run(recorder, training, batch)
        for moments in training.optimizer.state.values():
            recorder.trace.state += [
                (recorder.born(tensor), tensor.untyped_storage().nbytes())
                for tensor in moments.values()
            ]
    return recorder.trace


def _run(recorder: Recorder, training: Training, batch: Batch) -> None:
    rows = training.config.hardware.micro_batch
    first = Batch(batch.ids[:rows], batch.targets[:rows])
    for step, part in enumerate((first, batch)):
        recorder.step, recorder.phase = step, OPTIMIZER
        train_step(training, part, step)
    recorder.step, recorder.phase = TRACED_STEPS, EVALUATION
    training.model.eval()
    with torch.no_grad(), training.backend.sdpa(), training.backend.autocast():
        training.model.loss_sums(*(tensor.to(training.backend.device) for tensor in first))
    training.model.train()


def _traceable(config: Config) -> tuple[Config, Backend]:
    """La misma configuración en CPU y sin compilar, y un dispositivo que calcula como el suyo."""
    hardware = config.hardware
    backend = Backend(
        device=torch.device("cpu"),
        dtype=_DTYPES[hardware.dtype],
        sdpa_backend=hardware.sdpa_backend,
        expand_kv=expands_kv(hardware.sdpa_backend),
        threads=1,
        # De qué tipo es el de verdad lo mira Muon, para elegir en qué precisión itera.
        description=DeviceDescription(hardware.device, "traza", None, 0),
    )
    plain = hardware.model_copy(update={"device": "cpu", "compile": False})
    return config.model_copy(update={"hardware": plain}), backend


def _empty_batch(recorder: Recorder, config: Config, on_device: bool) -> Batch:
    count = min(TRACED_MICRO_BATCHES, config.accumulation)
    shape = (config.hardware.micro_batch * count, config.model.seq_len)
    batch = Batch(torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.int64))
    for tensor in batch:
        if on_device:
            recorder.born(tensor)
        else:
            recorder.ignore(tensor)
    return batch
