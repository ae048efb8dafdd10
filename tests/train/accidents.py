"""Accidentes a voluntad: unos lotes que dan la pérdida que se quiera, hagan lo que hagan los pesos.

Los lotes envenenados llevan todos los ids a cero, y `poisoned` multiplica la pérdida de esos.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.model.loss import LossSums
from enlace.model.transformer import Transformer
from tests.train.streams import PeriodicStream


class PoisonedStream(PeriodicStream):
    """Con los lotes de `poison` envenenados y sin los de `removed`, como si no existieran.

    Args:
        config: de donde salen formas y semilla.
        poison: números de lote, en el flujo sin quitar nada.
        removed: números de lote que faltan, en orden.
        stop_at: lote durante el que llega un SIGTERM.
        kill_at: lote durante el que el proceso se mata.
    """

    def __init__(
        self,
        config: Config,
        poison: tuple[int, ...] = (),
        removed: tuple[int, ...] = (),
        stop_at: int | None = None,
        kill_at: int | None = None,
    ) -> None:
        super().__init__(config, stop_at=stop_at, kill_at=kill_at)
        self._poison = poison
        self._removed = removed

    def batch(self, step: int) -> Batch:
        for removed in self._removed:
            step += removed <= step
        batch = super().batch(step)
        return Batch(torch.zeros_like(batch.ids), batch.targets) if step in self._poison else batch


@contextmanager
def poisoned(factor: float) -> Iterator[None]:
    """Multiplica por `factor` la pérdida de los micro-batches con todos los ids a cero."""
    inner = Transformer.loss_sums

    def broken(model: Transformer, ids_BT: Tensor, targets_BT: Tensor) -> LossSums:
        sums: LossSums = inner(model, ids_BT, targets_BT)
        if ids_BT.any():
            return sums
        return sums._replace(objective=sums.objective * factor, ce=sums.ce * factor)

    with mock.patch.object(Transformer, "loss_sums", broken):
        yield


def without(state: Mapping[str, object], *keys: str) -> dict[str, object]:
    """Un estado sin algunas claves."""
    return {key: value for key, value in state.items() if key not in keys}
