"""El optimizador: AdamW para todo, o Muon para las matrices de los bloques y AdamW para lo demás.

Decaen los parámetros de dos dimensiones o más, incluidos los embeddings: atados a la salida son
la matriz de logits, y sueltos el decaimiento solo encoge las filas que el texto no usa. No decaen
los vectores (pesos de RMSNorm): su valor natural es 1, no 0.

Muon es para las matrices que transforman la corriente residual. Los embeddings y la salida no lo
son: cada fila es un token, y casi todas reciben gradiente muy de vez en cuando (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon/).
"""

from typing import Any

import torch
from torch import Tensor, nn

from enlace.backends import Backend
from enlace.config.schema import TrainConfig
from enlace.train.muon import MuonAdamW


def parameter_groups(model: nn.Module, train: TrainConfig) -> list[dict[str, Any]]:
    """Reparte los parámetros en grupos con `rule`, `weight_decay` y `lr_scale`.

    `lr_scale` es la fracción de la tasa del paso que le toca al grupo. Con AdamW hay dos grupos,
    matrices y vectores; con Muon, además, el de las matrices de los bloques. Cada parámetro aparece
    exactamente una vez; los atados cuentan como uno.
    """
    is_muon = train.optimizer == "muon"
    inner = _block_matrices(model) if is_muon else []
    taken = {id(parameter) for parameter in inner}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in taken]
    scale = train.muon_adamw_lr_ratio if is_muon else 1.0
    matrices: dict[str, Any] = {"params": [p for p in rest if p.ndim >= 2], "rule": "adamw"}
    vectors: dict[str, Any] = {"params": [p for p in rest if p.ndim < 2], "rule": "adamw"}
    groups = [
        matrices | {"weight_decay": train.weight_decay, "lr_scale": scale},
        vectors | {"weight_decay": 0.0, "lr_scale": scale},
    ]
    if is_muon:
        muon: dict[str, Any] = {"params": inner, "rule": "muon", "lr_scale": 1.0}
        groups.append(muon | {"weight_decay": train.weight_decay})
    assert_complete(model, groups)
    return groups


def _block_matrices(model: nn.Module) -> list[Tensor]:
    blocks = model.get_submodule("blocks")
    return [parameter for parameter in blocks.parameters() if parameter.ndim == 2]


def assert_complete(model: nn.Module, groups: list[dict[str, Any]]) -> None:
    """Comprueba que los grupos contienen cada parámetro del modelo una vez y ninguno ajeno."""
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    expected = {id(parameter) for parameter in model.parameters()}
    repeated, foreign = len(grouped) - len(set(grouped)), set(grouped) - expected
    assert not repeated, f"{repeated} parámetros están en más de un grupo"
    assert not foreign, f"{len(foreign)} parámetros de los grupos no son del modelo"
    assert expected == set(grouped), f"{len(expected - set(grouped))} parámetros no tienen grupo"


def build_optimizer(
    model: nn.Module, train: TrainConfig, backend: Backend
) -> torch.optim.Optimizer:
    """El optimizador de `train.optimizer` sobre los grupos de `parameter_groups`.

    AdamW usa el núcleo fundido donde torch lo tiene (CPU y CUDA): ni temporales del tamaño del
    modelo ni sincronizaciones por paso.
    """
    groups = parameter_groups(model, train)
    adamw: dict[str, Any] = {
        "betas": (train.beta1, train.beta2),
        "eps": train.eps,
        "fused": backend.device.type in ("cpu", "cuda"),
    }
    if train.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=train.lr, **adamw)
    return MuonAdamW(
        groups,
        lr=train.lr,
        momentum=train.muon_momentum,
        ns_steps=train.muon_steps,
        ns_dtype=newton_schulz_dtype(backend),
        adamw=adamw,
    )


def newton_schulz_dtype(backend: Backend) -> torch.dtype:
    """La precisión de Newton–Schulz: bf16 si se entrena en bf16 en una GPU; si no, fp32.

    Una GPU que entrena en bf16 lo tiene nativo (`check_dtype` rechaza las demás). Con fp16, que es
    lo de Turing, se itera en fp32: en fp16 los elementos pequeños de XXᵀ se anularían, y con ellos
    las direcciones que Muon debe levantar; y los productos son pocos (`newton_schulz_flops`). En
    CPU también, porque sus productos en 16 bits suelen ir más despacio.
    """
    is_bf16 = backend.dtype == torch.bfloat16 and backend.description.kind == "cuda"
    return torch.bfloat16 if is_bf16 else torch.float32


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Pone la tasa del paso en cada grupo, con la fracción que le toca."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]
