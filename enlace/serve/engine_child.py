"""El proceso que abre un GGUF con llama.cpp para servirlo, hasta que lo paran.

    python -m enlace.serve.engine_child PADRE < ajustes.json

Los ajustes llegan por la entrada estándar: la clave no debe verse en la lista de procesos. Escribe
su dirección en la salida estándar cuando está listo.
"""

import json
import os
import signal
import sys

from enlace.process import die_with_parent


def main() -> None:
    """Atiende hasta recibir SIGTERM o quedarse sin padre."""
    die_with_parent(int(sys.argv[1]))
    settings = json.load(sys.stdin)

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["context"] * settings["parallel"]
    params.n_gpu_layers = 0
    params.ctx_shift = False
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _threads()
    # Esperar sin girar en vacío: entre petición y petición, y en una máquina ocupada, molesta.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    # Sin la reserva de prompts ya leídos, que crecería hasta 8 GiB.
    params.cache_ram_mib = 0
    params.ui = False
    params.endpoint_slots = False
    params.api_keys = [settings["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


def _threads() -> int:
    """Los hilos de OMP_NUM_THREADS o uno por núcleo que se pueda usar."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
