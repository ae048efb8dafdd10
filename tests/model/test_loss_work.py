"""Lo que la pérdida no llega a hacer: logits enteros, productos que sobran, trazas de compile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from enlace.model.loss import linear_cross_entropy
from tests.model.support_loss import N, loss_case, loss_gradients


class _Watch(TorchDispatchMode):
    """Anota el mayor tensor que da una operación y cuántos productos de matrices hubo."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.products = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple | list) else (result,)
        for output in outputs:
            if isinstance(output, Tensor):
                self.largest = max(self.largest, output.untyped_storage().nbytes())
        self.products += "mm" in str(func)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [64, 512])
def test_los_logits_del_batch_no_existen_nunca(rows: int, dtype: torch.dtype) -> None:
    vocab, chunk_rows = 1024, 32
    hidden, weight, targets = loss_case(rows=rows, vocab=vocab)
    with _Watch() as watch:
        loss_gradients(hidden.to(dtype), weight, targets, z_weight=1e-4, chunk_rows=chunk_rows)
    assert watch.largest == 4 * chunk_rows * vocab


def test_sin_gradiente_no_se_trabaja_para_el() -> None:
    hidden, weight, targets = loss_case()
    weight.requires_grad_()
    with _Watch() as watch, torch.no_grad():
        quiet = linear_cross_entropy(hidden, weight, targets, z_weight=1e-4, chunk_rows=N)
    assert watch.products == 1
    with _Watch() as watch:
        loud = linear_cross_entropy(hidden, weight, targets, z_weight=1e-4, chunk_rows=N)
    assert watch.products == 2  # los logits y dW: hidden no pide gradiente
    assert not quiet.objective.requires_grad
    assert torch.equal(quiet.objective, loud.objective)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compile_no_entra_en_la_perdida() -> None:
    hidden, weight, targets = loss_case()
    weight.requires_grad_()

    def doubled(states: Tensor) -> Tensor:
        sums = linear_cross_entropy(2 * states, weight, targets, z_weight=1e-4, chunk_rows=8)
        doubled_sum: Tensor = 2 * sums.objective
        return doubled_sum

    graphs: list[torch.fx.GraphModule] = []

    def spy(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(doubled, backend=spy)
    torch.testing.assert_close(compiled(hidden), doubled(hidden))
    traced = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert traced
    assert not any("mm" in target or "softmax" in target for target in traced)
