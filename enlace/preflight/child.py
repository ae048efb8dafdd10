"""El proceso que mide: `python -m enlace.preflight.child RESULTADO CARPETA`, config por stdin.

Es un proceso aparte porque una medida puede acabar en un `abort` de CUDA o en manos del OOM killer,
y eso debe ser una respuesta del preflight, no su final.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import torch

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.errors import EnlaceError
from enlace.files import write_text
from enlace.preflight.measure import measure
from enlace.preflight.measurement import Failure, Outcome
from enlace.process import die_with_parent

_FIRST_VICTIM = "1000"
_CPU_OUT_OF_MEMORY = "DefaultCPUAllocator"


def measured(config: Config, scratch: Path) -> Outcome:
    """Mide y convierte en `Failure` lo que se puede explicar: memoria agotada y errores propios."""
    try:
        return measure(config, open_device(config.hardware), scratch)
    except (MemoryError, torch.OutOfMemoryError) as error:
        return Failure(kind="memory", detail=_first_line(error))
    except EnlaceError as error:
        return Failure(kind="refused", detail=str(error))
    except RuntimeError as error:
        # torch no tiene una excepción propia para la RAM agotada.
        if _CPU_OUT_OF_MEMORY in str(error):
            return Failure(kind="memory", detail=_first_line(error))
        raise


def main() -> None:
    """Lee la configuración, mide y escribe el resultado, entero o nada."""
    result, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    die_with_parent()
    # Si la RAM se agota, que el núcleo elija este proceso y no el de quien espera la respuesta.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_VICTIM, encoding="ascii")
    config = Config.model_validate_json(sys.stdin.read())
    write_text(result, measured(config, scratch).model_dump_json())
    sys.stdout.flush()
    # Sin destructores: un fallo al cerrar CUDA no debe desmentir una medida ya escrita.
    os._exit(0)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    main()
