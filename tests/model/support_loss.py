"""Casos de la pérdida, sus gradientes y una referencia ingenua en float64."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.model.loss import IGNORED, LossSums, linear_cross_entropy

N, E, V = 37, 16, 53


def loss_case(
    seed: int = 0, rows: int = N, width: int = E, vocab: int = V
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator)
    weight = torch.randn(vocab, width, generator=generator)
    targets = torch.randint(vocab, (rows,), generator=generator)
    targets[3::5] = IGNORED
    return hidden, weight, targets


def exact_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, z_weight: float, upstream: float = 1.0
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Sumas y gradientes en float64, con los logits enteros."""
    hidden = hidden.detach().double().requires_grad_()
    weight = weight.detach().double().requires_grad_()
    logits = hidden @ weight.T
    ce = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    z = (logits.logsumexp(1).square() * (targets != IGNORED)).sum()
    objective = ce + z_weight * z
    (objective * upstream).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return {"objective": objective, "ce": ce, "z": z}, hidden.grad, weight.grad


def loss_gradients(
    hidden: Tensor, weight: Tensor, targets: Tensor, upstream: float = 1.0, **options: Any
) -> tuple[LossSums, Tensor, Tensor]:
    hidden = hidden.detach().clone().requires_grad_()
    weight = weight.detach().clone().requires_grad_()
    sums = linear_cross_entropy(hidden, weight, targets, **options)
    (sums.objective * upstream).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return sums, hidden.grad, weight.grad
