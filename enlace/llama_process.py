"""Un proceso que abre un GGUF con llama.cpp y atiende en la propia máquina hasta que lo paran."""

import os
import signal
import sys
from typing import Any


def cpu_params(model: str, context: int, parallel: int) -> Any:
    """Los ajustes (`xllamacpp.CommonParams`) para atender solo con la CPU y solo en esta máquina.

    Args:
        model: el GGUF.
        context: tokens de contexto de cada respuesta.
        parallel: respuestas a la vez.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel = parallel
    params.n_ctx = context * parallel
    params.n_gpu_layers = 0
    params.warmup = False
    params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _threads()
    # Esperar sin girar en vacío: en una máquina ocupada, girar cuesta cien veces más que calcular.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = 0
    return params


def attend(params: Any) -> None:
    """Abre el modelo, escribe su dirección en la salida estándar y atiende hasta una señal."""
    import xllamacpp

    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


def _threads() -> int:
    """Los mismos hilos que torch: los de OMP_NUM_THREADS o uno por núcleo que se pueda usar."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else len(os.sched_getaffinity(0))
