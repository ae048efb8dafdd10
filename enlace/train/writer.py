"""Quien guarda los checkpoints: copia el instante, deja seguir al bucle y escribe detrás.

Hay un guardado en marcha como mucho; el siguiente espera a que acabe. Uno que falla se repite desde
la misma copia; si no hay manera, se dice y el entrenamiento sigue con lo guardado antes, hasta que
fallan demasiados seguidos. Solo se borran los que sobran cuando el nuevo está entero en el disco.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from enlace.config.schema import Config
from enlace.errors import CheckpointError, cause_of
from enlace.figures import duration
from enlace.train.checkpoint import MODEL, OPTIMIZER, checkpoint_dir, write_checkpoint
from enlace.train.retention import prune
from enlace.train.snapshot import Camera, Snapshot

WAIT_WORTH_SAYING = 1.0
"""Segundos de espera al guardado anterior a partir de los cuales se avisa."""


class CheckpointWriter:
    """Guarda los checkpoints de un run.

    Se usa como contexto: al salir espera a lo que quede en marcha, salvo que se salga con prisa
    (KeyboardInterrupt).

    Args:
        run_dir: carpeta del run, que este proceso tiene en exclusiva.
        config: cuándo, cuántos y con qué paciencia.
        device: dónde están los tensores.
        say: recibe los avisos, una línea cada uno; se llama desde otro hilo.
        sync: lleva al disco lo que el checkpoint no debe adelantar (el registro).
        sleep: espera entre intentos.

    Attributes:
        newest: el último checkpoint completo, guardado o leído.
        stall: segundos que el bucle ha estado detenido por los guardados.
    """

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        device: torch.device,
        say: Callable[[str], None],
        sync: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.newest: Path | None = None
        self.stall = 0.0
        self._run_dir = run_dir
        self._config = config
        self._say = say
        self._sync = sync
        self._sleep = sleep
        self._camera = Camera(device)
        self._thread: threading.Thread | None = None
        self._failure: CheckpointError | None = None
        self._bug: BaseException | None = None
        self._failed_in_a_row = 0
        self._latest: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait()
        elif issubclass(kind, Exception):
            self._join()

    def reserve(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> int:
        """Reserva la memoria de la copia y devuelve los bytes de un checkpoint.

        Args:
            model: los tensores que se guardarán, o sus formas (dispositivo meta).
            optimizer: ídem.
        """
        return self._camera.reserve({MODEL: model, OPTIMIZER: optimizer})

    def opened(self, path: Path, step: int) -> None:
        """Anota el checkpoint del que se parte."""
        self.newest, self._latest = path, step

    def save(
        self, state: Mapping[str, Any], model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
    ) -> None:
        """Guarda este instante; vuelve en cuanto está copiado.

        El paso que ya está guardado, o guardándose, no se repite. Con `train.save_background` en
        false vuelve cuando está en el disco.

        Raises:
            CheckpointError: han fallado demasiados guardados seguidos.
        """
        if state["step"] == self._latest:
            return
        started = time.perf_counter()
        self._join()
        waited = time.perf_counter() - started
        self.check()
        snapshot = self._camera.take(state, {MODEL: model, OPTIMIZER: optimizer})
        self._latest = state["step"]
        # Un hilo «daemon» no impide salir con prisa: lo que deje a medias es un temporal.
        self._thread = threading.Thread(
            target=self._work, args=(snapshot,), name="enlace-checkpoint", daemon=True
        )
        self._thread.start()
        if not self._config.train.save_background:
            self._join()
        self.stall += time.perf_counter() - started
        if waited > WAIT_WORTH_SAYING:
            self._say(
                f"aviso: el guardado del paso {state['step']} ha esperado {duration(waited)} al "
                "anterior; si se repite, sube train.save_every"
            )

    def check(self) -> None:
        """Detiene el entrenamiento si los guardados fallan sin remedio.

        Raises:
            CheckpointError: han fallado `train.max_failed_saves` seguidos.
        """
        limit = self._config.train.max_failed_saves
        if self._failure is not None and self._failed_in_a_row >= limit:
            raise CheckpointError(
                f"han fallado {self._failed_in_a_row} guardados seguidos "
                f"(train.max_failed_saves = {limit}); el último: {self._failure}"
            ) from self._failure

    def wait(self) -> None:
        """Espera a que el último guardado esté en el disco.

        Raises:
            CheckpointError: no se pudo guardar; los anteriores siguen intactos.
        """
        started = time.perf_counter()
        self._join()
        self.stall += time.perf_counter() - started
        if self._failure is not None:
            raise self._failure

    def settle(self) -> None:
        """Espera a que acabe el guardado en marcha, haya ido bien o mal."""
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._bug is not None:
            bug, self._bug = self._bug, None
            raise bug

    def _work(self, snapshot: Snapshot) -> None:
        """Lo que hace el hilo: escribir y podar. Un fallo del programa vuelve al bucle."""
        try:
            self._write(snapshot)
            if self._failure is None:
                self._prune()
        except BaseException as error:
            self._bug = error

    def _write(self, snapshot: Snapshot) -> None:
        recipe, step = self._config.train, snapshot.state["step"]
        for attempt in range(1, recipe.save_retries + 2):
            try:
                self._sync()
                self.newest = write_checkpoint(self._run_dir, snapshot)
            except (OSError, CheckpointError) as error:
                self._failure = self._describe(step, error)
                self._say(f"aviso: intento {attempt}: {self._failure}")
                if attempt <= recipe.save_retries:
                    self._sleep(recipe.save_retry_seconds * 2 ** (attempt - 1))
                continue
            if self._failure is not None:
                self._say(f"el paso {step} ya está guardado en {self.newest}")
            self._failure, self._failed_in_a_row = None, 0
            return
        self._failed_in_a_row += 1

    def _describe(self, step: int, error: Exception) -> CheckpointError:
        intact = f"{self.newest} sigue intacto" if self.newest else "aún no hay ningún checkpoint"
        return CheckpointError(
            f"no se ha podido guardar {checkpoint_dir(self._run_dir, step)} ({cause_of(error)}); "
            f"{intact}: libera espacio o revisa el disco"
        )

    def _prune(self) -> None:
        """Borra los que sobran; si no se puede, se dice: lo nuevo ya está a salvo."""
        try:
            prune(self._run_dir, self._config.train)
        except OSError as error:
            self._say(
                f"aviso: no se han podido borrar los checkpoints que sobran ({cause_of(error)})"
            )
