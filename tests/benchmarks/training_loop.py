"""El bucle corriente de PyTorch que usan los contrincantes que no traen uno propio.

AdamW fundido, recorte de gradientes y, fuera de fp32, autocast (con GradScaler en fp16): lo que
escribe cualquiera que entrena con esas bibliotecas, y lo mismo para todas.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.benchmarks.training_session import Session
from tests.benchmarks.training_works import Setup

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Loss = Callable[[Tensor, Tensor], Tensor]


def train(model: nn.Module, loss_of: Loss, setup: Setup, session: Session) -> None:
    """Entrena `model` sin fin, un paso por lote.

    Args:
        model: en el dispositivo, con sus pesos ya puestos.
        loss_of: de ids y objetivos (B, T) a la pérdida media.
        setup: el trabajo.
        session: a quién se le dice que ha pasado un paso.
    """
    recipe = setup.config().train
    dtype = DTYPES[setup.config().hardware.dtype]
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        groups,
        weight_decay=recipe.weight_decay,
        lr=recipe.lr,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
        fused=True,
    )
    scaler = torch.amp.GradScaler(setup.device, enabled=dtype == torch.float16)
    model.train()
    session.ready(count_parameters(model))
    for batch in setup.batches():
        ids_BT, targets_BT = batch.ids.to(setup.device), batch.targets.to(setup.device)
        with torch.autocast(setup.device, dtype, enabled=dtype != torch.float32):
            loss = loss_of(ids_BT, targets_BT)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        session.step(loss.detach())


def full_logits(model: Callable[[Tensor], Tensor]) -> Loss:
    """La pérdida de siempre: todos los logits y `F.cross_entropy`."""

    def loss_of(ids_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(model(ids_BT).flatten(0, 1), targets_BT.flatten())

    return loss_of


def count_parameters(model: nn.Module) -> int:
    """Parámetros; los compartidos cuentan una vez."""
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def initialize(model: nn.Module, std: float, names: Mapping[str, str] | None = None) -> None:
    """Da a cada matriz valores que dependen solo de su nombre; los vectores quedan como estaban.

    Así dos modelos iguales en procesos distintos empiezan con los mismos pesos sin copiárselos.

    Args:
        model: el modelo, en cualquier dispositivo.
        std: desviación típica.
        names: cómo llama ENLACE a cada parámetro que aquí se llama de otra manera.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        own = (names or {}).get(name, name)
        generator = torch.Generator().manual_seed(zlib.crc32(own.encode("utf-8")))
        parameter.copy_(torch.empty(parameter.shape).normal_(std=std, generator=generator))


def hf_names(model: Any) -> dict[str, str]:
    """De los nombres de transformers a los de ENLACE, para un `Reference` o un `Transformer`."""
    from enlace.model.hf_names import hf_name

    return {hf_name(name): name for name, _ in model.named_parameters()}
