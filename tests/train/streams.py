"""Un flujo de prueba: bytes periódicos con ruido, función pura de (semilla, paso)."""

import os
import signal
from typing import Any

import torch

from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.errors import CheckpointError
from enlace.model.loss import IGNORED

_TEXT = torch.tensor(list("el río baja lento y la tarde se va ".encode()))


class PeriodicStream:
    """Trozos de un texto periódico; las filas ignoran números distintos de objetivos.

    Con objetivos desiguales, una media de medias por micro-batch daría otro gradiente.

    Args:
        config: de donde salen formas y semilla.
        fingerprint: huella de los datos.
        kill_at: paso en el que el proceso se mata con SIGKILL, como un corte de luz.
        stop_at: paso durante el que llega un SIGTERM.
        empty_at: paso sin ningún objetivo.
    """

    def __init__(
        self,
        config: Config,
        fingerprint: str = "datos-de-prueba",
        kill_at: int | None = None,
        stop_at: int | None = None,
        empty_at: int | None = None,
    ) -> None:
        self.fingerprint = fingerprint
        self._seed = config.train.seed
        self._sequences = config.sequences_per_step
        self._length = config.model.seq_len
        self._kill_at = kill_at
        self._stop_at = stop_at
        self._empty_at = empty_at

    def batch(self, step: int) -> Batch:
        if step == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == self._stop_at:
            signal.raise_signal(signal.SIGTERM)
        generator = torch.Generator().manual_seed(1000 * self._seed + step)
        starts_S1 = torch.randint(len(_TEXT), (self._sequences, 1), generator=generator)
        positions = starts_S1 + torch.arange(self._length + 1)
        tokens = _TEXT[positions % len(_TEXT)].clone()
        noise = torch.rand(tokens.shape, generator=generator) < 0.1
        tokens[noise] = torch.randint(256, (int(noise.sum()),), generator=generator)
        ids_ST, targets_ST = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        for row in range(self._sequences):
            targets_ST[row, : (3 * row) % self._length] = IGNORED
        if step == self._empty_at:
            targets_ST.fill_(IGNORED)
        return Batch(ids_ST, targets_ST)

    def state_dict(self, step: int) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "seed": self._seed, "step": step}

    def check_state(self, state: dict[str, Any]) -> None:
        if state["fingerprint"] != self.fingerprint:
            raise CheckpointError(
                f"otros datos: fingerprint era {state['fingerprint']} y es {self.fingerprint}"
            )
