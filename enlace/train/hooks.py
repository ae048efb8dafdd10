"""Las órdenes que el usuario pide ejecutar cuando un entrenamiento acaba, bien o mal."""

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from enlace.config.schema import TrainConfig
from enlace.errors import EnlaceError, UnfinishedError, fault_of
from enlace.train.checkpoint import checkpoint_folders, step_of


@contextmanager
def hooks(
    train: TrainConfig, run: str, folder: Callable[[], Path], say: Callable[[str], None]
) -> Iterator[None]:
    """Ejecuta `train.on_finish` si el bloque acaba, y `train.on_fail` si no llega al final.

    La orden recibe en su entorno ENLACE_RUN, ENLACE_STATUS (`finished`, `stopped` o `failed`),
    ENLACE_STEP (pasos del último checkpoint) y ENLACE_MESSAGE. Pase lo que pase con ella, el
    resultado es el del bloque. Un segundo Ctrl-C pide salir ya: no ejecuta nada.

    Args:
        train: las órdenes y cuánto se las espera.
        run: nombre del run.
        folder: da la carpeta del run, que puede no existir todavía.
        say: recibe lo que pasó con la orden, en una línea.
    """
    status, message = "failed", ""
    try:
        yield
        status, message = "finished", "entrenamiento terminado"
    except UnfinishedError as error:
        status, message = "stopped", str(error)
        raise
    except EnlaceError as error:
        message = str(error)
        raise
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
        raise
    finally:
        command = train.on_finish if status == "finished" else train.on_fail
        if command and status != "interrupted":
            values = {
                "ENLACE_RUN": run,
                "ENLACE_STATUS": status,
                "ENLACE_STEP": str(_saved_step(folder())),
                "ENLACE_MESSAGE": message,
            }
            say(run_hook(command, values, train.hook_seconds))


def run_hook(command: Sequence[str], values: dict[str, str], seconds: float) -> str:
    """Ejecuta una orden, sin shell y sin esperarla más de `seconds`, y dice cómo acabó."""
    name = command[0]
    try:
        done = subprocess.run(
            command,
            env=os.environ | values,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"aviso: {name} no acabó en {seconds:g} s (train.hook_seconds) y se ha detenido"
    except (OSError, ValueError) as error:
        return f"aviso: no se ha podido ejecutar {name}: {fault_of(error)}"
    if done.returncode:
        return f"aviso: {name} acabó con el código {done.returncode}"
    return f"ejecutado {name} ({values['ENLACE_STATUS']})"


def _saved_step(folder: Path) -> int:
    saved = checkpoint_folders(folder)
    return step_of(saved[-1]) if saved else 0
