"""El proceso que abre un GGUF con llama.cpp para servirlo, hasta que lo paran.

    python -m enlace.serve.engine_child PADRE < ajustes.json

Los ajustes llegan por la entrada estándar: la clave no debe verse en la lista de procesos. Escribe
su dirección en la salida estándar cuando está listo.
"""

import json
import sys

from enlace.llama_process import attend, cpu_params
from enlace.process import die_with_parent


def main() -> None:
    """Atiende hasta recibir SIGTERM o quedarse sin padre."""
    die_with_parent(int(sys.argv[1]))
    settings = json.load(sys.stdin)
    params = cpu_params(settings["model"], settings["context"], settings["parallel"])
    params.ctx_shift = False
    # Sin la reserva de prompts ya leídos, que crecería hasta 8 GiB.
    params.cache_ram_mib = 0
    params.endpoint_slots = False
    params.api_keys = [settings["key"]]
    attend(params)


if __name__ == "__main__":
    main()
