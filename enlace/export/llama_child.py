"""El proceso que abre un GGUF con llama.cpp y atiende en la propia máquina hasta que lo paran.

    python -m enlace.export.llama_child PADRE MODELO CONTEXTO PRECISION

Escribe su dirección en la salida estándar cuando está listo. Con PRECISION `exact`, claves y
valores en fp32 y sin flash attention: así sus logits son los de una referencia en fp32.
"""

import os
import signal
import sys

from enlace.process import die_with_parent


def main() -> None:
    """Atiende hasta recibir SIGTERM o quedarse sin padre."""
    parent, model, context, precision = sys.argv[1:]
    die_with_parent(int(parent))

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = int(context)
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _threads()
    # Esperar sin girar en vacío: en una máquina ocupada, girar cuesta cien veces más que calcular.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.verbosity = 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    if precision == "exact":
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        attention = xllamacpp.llama_flash_attn_type
        params.flash_attn_type = attention.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


def _threads() -> int:
    """Los mismos hilos que torch: los de OMP_NUM_THREADS o uno por núcleo que se pueda usar."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
