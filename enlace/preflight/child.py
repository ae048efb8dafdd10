"""El proceso que mide: `… -m enlace.preflight.child RESULTADO CARPETA SHARDS`, config por stdin.

Es un proceso aparte porque una medida puede acabar en un `abort` de CUDA o en manos del OOM killer,
y eso debe ser una respuesta del preflight, no su final. Con `--describe DISPOSITIVO` solo dice qué
dispositivo es: así quien pregunta no abre CUDA ni ocupa la tarjeta que se va a medir.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import torch

from enlace.backends import Backend, describe_device, open_device
from enlace.config.schema import Config
from enlace.errors import EnlaceError, TrainingAbortedError, user_errors
from enlace.files import write_text
from enlace.preflight.energy import Card
from enlace.preflight.health import Health
from enlace.preflight.measure import measure
from enlace.preflight.measurement import Failure, Outcome
from enlace.preflight.probes import probe_health
from enlace.preflight.rehearsal import Instruments
from enlace.preflight.warmup import warm_up
from enlace.process import die_with_parent

_DESCRIBE = "--describe"
_NO_PROBES = "--no-probes"
_PARENT = "--parent="
_FIRST_VICTIM = "1000"
_CPU_OUT_OF_MEMORY = "DefaultCPUAllocator"


def measured(config: Config, scratch: Path, shards: Path | None, probe: bool) -> Outcome:
    """Mide y convierte en `Failure` lo que se puede explicar: memoria agotada y errores propios.

    Args:
        config: la configuración que se mide.
        scratch: carpeta en el disco de los checkpoints.
        shards: shards de los que leer para medir la lectura.
        probe: si en fp16 se mide también la salud numérica.
    """
    health: Health | None = None
    try:
        card = _card(config)
        free = None if card is None else card.free_bytes()
        backend = open_device(config.hardware, config.model, config.data.document_mask)
        warm_up(config, backend)
        tools = Instruments.open(backend, card, free)
        health = _health(config, backend) if probe else None
        return measure(config, backend, scratch, tools, shards, health)
    except (MemoryError, torch.OutOfMemoryError) as error:
        return Failure(kind="memory", detail=_first_line(error), health=health)
    except TrainingAbortedError as error:
        return Failure(kind="refused", detail=str(error), health=health)
    except EnlaceError as error:
        return Failure(kind="refused", detail=str(error))
    except RuntimeError as error:
        # torch no tiene una excepción propia para la RAM agotada.
        if _CPU_OUT_OF_MEMORY in str(error):
            return Failure(kind="memory", detail=_first_line(error), health=health)
        raise


def main() -> None:
    """Lee la configuración, mide y escribe el resultado, entero o nada."""
    die_with_parent(_launcher(sys.argv))
    if sys.argv[1] == _DESCRIBE:
        answer(sys.argv[2])
        return
    result, scratch, shards = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    probe = _NO_PROBES not in sys.argv[4:]
    # Si la RAM se agota, que el núcleo elija este proceso y no el de quien espera la respuesta.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_VICTIM, encoding="ascii")
    config = Config.model_validate_json(sys.stdin.read())
    with user_errors():
        outcome = measured(config, scratch, Path(shards) if shards else None, probe)
        write_text(result, outcome.model_dump_json())
    # Sin destructores: un fallo al cerrar CUDA no debe desmentir una medida ya escrita.
    os._exit(0)


def _launcher(arguments: list[str]) -> int | None:
    given = [text.removeprefix(_PARENT) for text in arguments if text.startswith(_PARENT)]
    return int(given[0]) if given else None


def answer(device: str) -> None:
    """Escribe el nombre del dispositivo, o acaba con el motivo de que no lo haya."""
    try:
        description = describe_device(device)
    except EnlaceError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{description.name}\n")


def _card(config: Config) -> Card | None:
    """La tarjeta en NVML, antes de pedir memoria en ella; `None` en CPU."""
    if config.hardware.device != "cuda" or not torch.cuda.is_available():
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return Card.open(None if uuid is None else str(uuid))


def _health(config: Config, backend: Backend) -> Health | None:
    return probe_health(config, backend) if config.hardware.dtype == "fp16" else None


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    main()
