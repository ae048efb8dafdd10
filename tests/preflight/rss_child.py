"""Mide en un proceso nuevo cuánta RAM añade un entrenamiento: config por stdin, bytes a stdout.

Hace lo que traza la estimación: unos pasos y una validación de un micro-batch. Antes entrena
un modelo diminuto, para que bibliotecas, hilos y núcleos de cálculo ya estén en la línea base.
"""

import ctypes
import gc
import sys
from pathlib import Path

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.evaluation.loss import evaluate_loss
from enlace.preflight.synthetic import synthetic_batch
from enlace.train.trainer import build_training, train_step
from tests.support import make_config

_STEPS = 3


def run(config: Config) -> None:
    """Unos pasos y una validación."""
    backend = open_device(config.hardware)
    training = build_training(config, backend)
    batch = synthetic_batch(config, config.sequences_per_step, 0)
    for step in range(_STEPS):
        train_step(training, batch, step)
    rows = config.hardware.micro_batch
    evaluate_loss(training.model, [Batch(batch.ids[:rows], batch.targets[:rows])], backend)


def field(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def main() -> None:
    config = Config.model_validate_json(sys.stdin.read())
    run(
        make_config(
            {
                "hardware.dtype": config.hardware.dtype,
                "hardware.host_allocator": config.hardware.host_allocator,
                "hardware.activation_checkpointing": config.hardware.activation_checkpointing,
                "train.lr": 1e-5,
            }
        )
    )
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = field("VmRSS")
    run(config)
    sys.stdout.write(f"{field('VmHWM') - before}\n")


if __name__ == "__main__":
    main()
