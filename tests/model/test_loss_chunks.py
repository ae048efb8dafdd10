"""Lo que la pérdida hace en el sitio: softmax sobre los logits, gradientes que se entregan."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode

from enlace.model.loss import IGNORED, linear_cross_entropy
from enlace.model.loss_chunks import Head, Rows

ROWS, WIDTH = 50, 8


@pytest.mark.parametrize(("vocab", "columns"), [(53, None), (1 << 15, None), (53, 16), (53, 53)])
def test_el_softmax_en_el_sitio_es_el_de_torch_bit_a_bit(vocab: int, columns: int | None) -> None:
    hidden, weight = _drawn(ROWS, WIDTH), _drawn(vocab, WIDTH)
    targets = torch.arange(ROWS)
    head, rows = Head(hidden, weight, (40, columns)), Rows(targets)
    chunk, target_logit = next(head.chunks()), torch.empty(40)
    logits = [head.logits(chunk, part).clone() for part in head.columns()]
    softmaxes, lse = head.softmaxes(chunk, rows, target_logit)
    assert torch.equal(target_logit, torch.cat(logits, 1)[torch.arange(40), targets[:40]])
    for block, softmax, block_lse in zip(logits, softmaxes, lse, strict=True):
        assert torch.equal(softmax, block.softmax(1))
        torch.testing.assert_close(block_lse, block.logsumexp(1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("keep", [True, False])
def test_los_tampones_son_los_justos(keep: bool) -> None:
    hidden, weight = _drawn(ROWS, WIDTH), _drawn(53, WIDTH)
    head = Head(hidden, weight, (40, 16), keep=keep)
    softmaxes, _ = head.softmaxes(next(head.chunks()), Rows(torch.arange(ROWS)), torch.empty(40))
    sizes = {softmax.untyped_storage().nbytes() for softmax in softmaxes}
    assert sizes == {4 * 40 * (53 if keep else 16)}
    assert len({softmax.data_ptr() for softmax in softmaxes}) == (4 if keep else 1)


@pytest.mark.parametrize("columns", [None, 1, 2])
def test_un_objetivo_imposible_no_estropea_el_gradiente(columns: int | None) -> None:
    """La probabilidad de todo el bloque del objetivo se hace 0 en fp32."""
    weight = torch.tensor([[0.0], [200.0], [1.0], [150.0]])
    hidden, targets = torch.tensor([[1.0], [-1.0], [0.01]]), torch.tensor([0, 1, 2])
    ours = [tensor.clone().requires_grad_() for tensor in (hidden, weight)]
    exact = [tensor.double().requires_grad_() for tensor in (hidden, weight)]
    linear_cross_entropy(
        ours[0], ours[1], targets, z_weight=1e-4, chunk_rows=2, chunk_columns=columns
    ).objective.backward()
    logits = exact[0] @ exact[1].T
    z = 1e-4 * logits.logsumexp(1).square().sum()
    (F.cross_entropy(logits, targets, reduction="sum") + z).backward()
    for our, reference in zip(ours, exact, strict=True):
        assert our.grad is not None
        assert reference.grad is not None
        torch.testing.assert_close(our.grad.double(), reference.grad, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("level", [-1.0, -1.0 + 1e-7, -1.0 - 3e-7, -0.9])
def test_un_factor_nulo_no_divide_por_cero(level: float) -> None:
    """Con ζ = 1/2 y logsumexp = −1, el factor 1 + 2ζs de la fila se anula."""
    vocab = 4
    hidden = torch.full((3, 1), 1.0, requires_grad=True)
    weight = torch.full((vocab, 1), level - torch.tensor(float(vocab)).log().item())
    weight.requires_grad_()
    targets = torch.tensor([1, IGNORED, 2])
    linear_cross_entropy(hidden, weight, targets, z_weight=0.5, chunk_rows=2).objective.backward()
    exact_hidden, exact_weight = hidden.detach().double(), weight.detach().double()
    for tensor in (exact_hidden, exact_weight):
        tensor.requires_grad_()
    logits = exact_hidden @ exact_weight.T
    z = (0.5 * logits.logsumexp(1).square() * (targets != IGNORED)).sum()
    (F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum") + z).backward()
    for ours, exact in ((hidden, exact_hidden), (weight, exact_weight)):
        assert ours.grad is not None
        assert exact.grad is not None
        torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("recompute", [False, True])
def test_sin_filas_los_gradientes_son_cero(recompute: bool) -> None:
    hidden, weight = torch.empty(0, WIDTH, requires_grad=True), _drawn(53, WIDTH).requires_grad_()
    targets = torch.empty(0, dtype=torch.int64)
    sums = linear_cross_entropy(
        hidden, weight, targets, z_weight=0.1, chunk_rows=4, recompute=recompute
    )
    sums.objective.backward()
    assert sums.objective.item() == sums.count.item() == 0
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(53, WIDTH))
    assert hidden.grad is not None
    assert hidden.grad.shape == (0, WIDTH)


class _Tables(TorchDispatchMode):
    """Las direcciones de las memorias de `size` bytes que da alguna operación.

    Solo direcciones: quien guardara el tensor obligaría a autograd a copiarlo.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().nbytes() == self.size:
                self.seen.add(tensor.untyped_storage().data_ptr())
        return out


def test_el_gradiente_de_la_tabla_existe_una_sola_vez() -> None:
    hidden, weight = _drawn(ROWS, WIDTH), _drawn(512, WIDTH).requires_grad_()
    targets = torch.arange(ROWS)
    with _Tables(weight.nbytes) as tables:
        sums = linear_cross_entropy(hidden, weight, targets, z_weight=1e-4, chunk_rows=16)
        (sums.objective / ROWS).backward()
    assert weight.grad is not None
    assert tables.seen - {weight.data_ptr()} == {weight.grad.data_ptr()}


def test_tras_entregarlos_otra_pasada_los_calcula_de_nuevo() -> None:
    hidden, weight = (_drawn(rows, WIDTH).requires_grad_() for rows in (ROWS, 53))
    sums = linear_cross_entropy(hidden, weight, torch.arange(ROWS), z_weight=0.1, chunk_rows=16)
    first = torch.autograd.grad(2 * sums.objective, (hidden, weight), retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(sums.objective, (hidden, weight), retain_graph=True)
    third = torch.autograd.grad(2 * sums.objective, (hidden, weight))
    for one, other, again, copy in zip(first, second, third, kept, strict=True):
        assert torch.equal(one, copy)
        torch.testing.assert_close(one, 2 * other, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(one, again, rtol=1e-5, atol=1e-6)


def _drawn(rows: int, width: int) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))
