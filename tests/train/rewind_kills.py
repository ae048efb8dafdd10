"""Muertes en mitad de una vuelta atrás, entre las llamadas al sistema que hace.

Como programa, prueba cada caso en procesos bifurcados antes de que torch calcule nada:

    python -m tests.train.rewind_kills CARPETA

`quieto/` es el entrenamiento que nadie toca; en `muerte-N/` el primer proceso se mata con SIGKILL
justo antes de la llamada N, contada desde que la vuelta empieza, y otro sigue hasta el final. Las
llamadas llegan hasta que el primer checkpoint posterior a la vuelta está escrito y comprobado; de
ellas se toman `KILLS`, a distancias iguales.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enlace.train import trainer, writer
from enlace.train.checkpoint import write_checkpoint
from enlace.train.rewind import rewind
from tests.support import make_config
from tests.train.accidents import PoisonedStream, poisoned
from tests.train.runs import run_training

QUIET = "quieto"
KILLS = 6
SYSTEM_CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir")
POISON, SPIKE = (11, 12), 50.0
CHANGES: dict[str, Any] = {
    "train.steps": 16,
    "train.save_every": 2,
    "train.keep_last": 8,
    "train.eval_every": 4,
    "train.rewind": True,
    "model.dropout": 0.1,
    "model.n_layer": 1,
    "hardware.threads": 1,
}
"""El checkpoint del paso 12 se guarda en plena racha, y la vuelta, del 12 al 10, lo borra."""


class Calls:
    """Cuenta las llamadas al sistema desde que empieza una vuelta; en una de ellas, muere.

    Args:
        last: en cuál; None para solo contar.
    """

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self._last = last
        self._counting = self._rewound = False

    def install(self) -> None:
        """Envuelve, en este proceso, la vuelta, el guardado y las llamadas."""

        def counted_rewind(*arguments: Any) -> None:
            self._counting = True
            rewind(*arguments)
            self._rewound = True

        def last_write(*arguments: Any) -> Path:
            # El guardado que la vuelta espera empezó antes que ella.
            after = self._rewound
            path = write_checkpoint(*arguments)
            self._counting &= not after
            return path

        patched: list[tuple[object, str, object]] = [
            (trainer, "rewind", counted_rewind),
            (writer, "write_checkpoint", last_write),
            *((os, name, self._counted(getattr(os, name))) for name in SYSTEM_CALLS),
        ]
        for owner, name, replacement in patched:
            setattr(owner, name, replacement)

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._counting:
                self.count += 1
                if self.count == self._last:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call


def life(folder: Path, last: int | None) -> tuple[int, int]:
    """Un proceso que entrena en `folder`: su código de salida y las llamadas que contó."""
    reader, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            calls = Calls(last)
            config = make_config(CHANGES)
            calls.install()
            with poisoned(SPIKE):
                run_training(folder, config, stream=PoisonedStream(config, POISON))
            os.write(sender, str(calls.count).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(sender)
    with os.fdopen(reader, "rb") as stream:
        count = int(stream.read() or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), count


def main() -> None:
    """Cuenta las llamadas de una vuelta y mata en algunas."""
    # El optimizador lo importa al crearse, y tarda más que estos entrenamientos: una vez basta.
    import torch._dynamo  # noqa: F401

    folder = Path(sys.argv[1])
    status, count = life(folder / QUIET, None)
    assert status == 0, status
    assert count >= KILLS, count
    for turn in range(KILLS):
        # Mientras se guarda, las llamadas del bucle se mezclan y el total varía un poco.
        last = 1 + turn * (count * 4 // 5) // (KILLS - 1)
        place = folder / f"muerte-{last}"
        status, _ = life(place, last)
        assert status == -signal.SIGKILL, f"{place}: {status}"
        status, _ = life(place, None)
        assert status == 0, f"{place}: {status}"


if __name__ == "__main__":
    main()
