"""El optimizador: AdamW con decaimiento solo en las matrices.

Decaen los parámetros de dos dimensiones o más, incluidos los embeddings: atados a la salida son
la matriz de logits, y sueltos el decaimiento solo encoge las filas que el texto no usa. No decaen
los vectores (pesos de RMSNorm): su valor natural es 1, no 0.
"""

from typing import Any

import torch
from torch import nn

from enlace.config.schema import TrainConfig


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Reparte los parámetros en dos grupos: con decaimiento (matrices) y sin él (vectores).

    Cada parámetro aparece exactamente una vez; los atados cuentan como uno.
    """
    parameters = list(model.parameters())
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    assert_complete(model, groups)
    return groups


def assert_complete(model: nn.Module, groups: list[dict[str, Any]]) -> None:
    """Comprueba que los grupos contienen cada parámetro del modelo una vez y ninguno ajeno."""
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    expected = {id(parameter) for parameter in model.parameters()}
    repeated, foreign = len(grouped) - len(set(grouped)), set(grouped) - expected
    assert not repeated, f"{repeated} parámetros están en más de un grupo"
    assert not foreign, f"{len(foreign)} parámetros de los grupos no son del modelo"
    assert expected == set(grouped), f"{len(expected - set(grouped))} parámetros no tienen grupo"


def build_optimizer(
    model: nn.Module, train: TrainConfig, device: torch.device
) -> torch.optim.Optimizer:
    """AdamW sobre los grupos de `parameter_groups`.

    Usa el núcleo fundido donde torch lo tiene (CPU y CUDA): ni temporales del tamaño del modelo
    ni sincronizaciones por paso.
    """
    return torch.optim.AdamW(
        parameter_groups(model, train.weight_decay),
        lr=train.lr,
        betas=(train.beta1, train.beta2),
        eps=train.eps,
        fused=device.type in ("cpu", "cuda"),
    )
