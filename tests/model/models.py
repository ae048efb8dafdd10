"""Modelos diminutos e ids al azar para las pruebas del modelo."""

from typing import Any

import torch
from torch import Tensor

from enlace.config.schema import ModelConfig
from enlace.model.transformer import Transformer
from tests.support import tiny_values


def model_config(**changes: Any) -> ModelConfig:
    """La arquitectura diminuta con `changes`; admite cualquier vocabulario."""
    return ModelConfig.model_validate(tiny_values()["model"] | changes)


def build_model(sdpa_backend: str = "flash", seed: int = 3, **changes: Any) -> Transformer:
    """Un modelo recién iniciado con esa semilla."""
    torch.manual_seed(seed)
    return Transformer(model_config(**changes), sdpa_backend)


def random_ids(rows: int = 2, length: int = 16, vocab: int = 256, seed: int = 1) -> Tensor:
    """Ids al azar, siempre los mismos para una semilla."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (rows, length), generator=generator)
