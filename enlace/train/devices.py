"""Una tarjeta que falla o se queda sin memoria a mitad del entrenamiento, dicho en una frase."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from enlace.errors import DeviceFailedError
from enlace.train.checkpoint import checkpoint_folders

_CPU_OUT_OF_MEMORY = "DefaultCPUAllocator"
"""torch no tiene una excepción propia para la RAM agotada: solo la nombra este texto."""


@contextmanager
def device_faults(run_dir: Path) -> Iterator[None]:
    """Convierte un fallo de la tarjeta o de la memoria en un `DeviceFailedError`.

    Args:
        run_dir: carpeta del run, para decir desde qué checkpoint se seguirá.

    Raises:
        DeviceFailedError: la tarjeta dejó de responder o no queda memoria.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _no_memory(run_dir, error) from error
    except torch.AcceleratorError as error:
        raise DeviceFailedError(
            f"la tarjeta ha dejado de responder ({_first_line(error)}); {_intact(run_dir)}. Mira "
            f"`nvidia-smi` y `dmesg`; si no aparece, reinicia, y repite la orden: "
            f"{_goes_on(run_dir)}"
        ) from error
    except RuntimeError as error:
        if _CPU_OUT_OF_MEMORY in str(error):
            raise _no_memory(run_dir, error) from error
        raise


def _no_memory(run_dir: Path, error: BaseException) -> DeviceFailedError:
    return DeviceFailedError(
        f"no queda memoria para seguir ({_first_line(error)}); {_intact(run_dir)}. Cierra lo que "
        "use la tarjeta, o baja hardware.micro_batch o pon "
        f"hardware.activation_checkpointing: block, y repite la orden: {_goes_on(run_dir)}"
    )


def _intact(run_dir: Path) -> str:
    saved = checkpoint_folders(run_dir)
    return f"{saved[-1]} sigue intacto" if saved else "aún no hay ningún checkpoint"


def _goes_on(run_dir: Path) -> str:
    return "sigue donde iba" if checkpoint_folders(run_dir) else "empieza de nuevo"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
