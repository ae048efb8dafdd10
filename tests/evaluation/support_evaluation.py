"""Modelos y lotes de las pruebas de evaluación."""

from collections.abc import Iterator

import torch

from enlace.backends import Backend, open_device
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.model.transformer import Transformer
from tests.support import make_config


def tiny_backend(config: Config | None = None) -> Backend:
    return open_device((config or make_config()).hardware)


def tiny_model(config: Config | None = None) -> Transformer:
    chosen = config or make_config()
    torch.manual_seed(3)
    hardware = chosen.hardware
    return Transformer(
        chosen.model,
        hardware.sdpa_backend,
        hardware.loss_chunk_rows,
        loss_chunk_columns=hardware.loss_chunk_columns,
    )


def tiny_batch(rows: int = 7, length: int = 32, ignored: int = 40) -> Batch:
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(1, 256, (rows, length + 1), generator=generator)
    targets = ids[:, 1:].clone()
    # Huecos desiguales por fila: la media de medias y la media por token se separan.
    targets.view(-1)[torch.randperm(targets.numel(), generator=generator)[:ignored]] = -100
    targets[0, :20] = -100
    return Batch(ids[:, :-1].contiguous(), targets)


def split(batch: Batch, rows: int) -> Iterator[Batch]:
    yield from map(Batch, batch.ids.split(rows), batch.targets.split(rows))
