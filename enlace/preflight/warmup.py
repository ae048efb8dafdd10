"""Calentar la CPU antes de medirla: bibliotecas, hilos y núcleos de cálculo.

La primera operación de un proceso carga código y reserva memoria que no es del entrenamiento. En
CUDA eso es el contexto, que se crea al abrir la tarjeta; en CPU no hay nada que abrir.
"""

import ctypes
import gc
from contextlib import suppress

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.errors import TrainingAbortedError
from enlace.preflight.synthetic import synthetic_batch
from enlace.train.trainer import build_training, train_step

_TINY_MODEL = {
    "vocab_size": 256,
    "n_layer": 1,
    "n_head": 1,
    "n_kv_head": 1,
    "d_model": 32,
    "seq_len": 16,
}


def warm_up(config: Config, backend: Backend) -> None:
    """Entrena un paso de un modelo diminuto con los mismos núcleos; en CUDA no hace nada.

    Args:
        config: de quien son la precisión, el checkpointing y la receta.
        backend: el dispositivo, ya abierto.
    """
    if backend.device.type != "cpu":
        return
    hardware = config.hardware.model_copy(update={"micro_batch": 1, "compile": False})
    model = config.model.model_copy(update=_TINY_MODEL)
    tiny = config.model_copy(update={"hardware": hardware, "model": model})
    # Si el modelo no da pérdidas finitas, lo dirá la medida, que sabe explicarlo.
    with suppress(TrainingAbortedError):
        train_step(build_training(tiny, backend), synthetic_batch(tiny, 1, 0), 0)
    gc.collect()
    # Lo que el montón retiene de este paso no es de las bibliotecas; solo glibc sabe devolverlo.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
