"""El suelo: los productos de matrices y la atención de un paso, y nada más.

Sin normas, sin RoPE, sin softmax de la pérdida, sin optimizador y con todos los tampones hechos.
Quien haga ese trabajo con los mismos núcleos no puede tardar menos: dice hasta dónde se llegaría.

Letras de forma: N tokens, I y O anchuras de entrada y de salida.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.config.schema import ModelConfig
from tests.benchmarks.training_loop import DTYPES
from tests.benchmarks.training_session import Session
from tests.benchmarks.training_works import Setup

Task = Callable[[], object]
Make = Callable[..., Tensor]
"""Un tensor al azar de la forma que se diga."""


def floor(setup: Setup, session: Session) -> None:
    """Un contrincante que solo multiplica."""
    session.mark_base()
    tasks = step_tasks(setup)
    session.ready(0)
    while True:
        for task in tasks:
            task()
        session.step(0.0)


def step_tasks(setup: Setup) -> list[Task]:
    """Los productos de un paso, en su orden; los de la pérdida, con los bloques de ENLACE."""
    config, tokens = setup.config(), setup.work.tokens
    model, hardware = config.model, config.hardware

    def make(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=DTYPES[hardware.dtype], device=setup.device)

    query, key, ffn = model.n_head * model.head_dim, model.n_kv_head * model.head_dim, model.ffn_dim
    widths = [(model.d_model, width) for width in (query, key, key, ffn, ffn)]
    widths += [(width, model.d_model) for width in (query, ffn)]
    layer = [
        task
        for inner, outer in widths
        for task in _products(make(tokens, inner), make(outer, inner), make(tokens, outer))
    ]
    layer.append(_attention(model, setup.work.batch, make))
    columns = min(hardware.loss_chunk_columns, model.vocab_size)
    hidden, logits = make(tokens, model.d_model), make(hardware.loss_chunk_rows * columns)
    tables = [
        (make(right - left, model.d_model), make(right - left, model.d_model))
        for left, right in pairwise([*range(0, model.vocab_size, columns), model.vocab_size])
    ]
    head: list[Task] = []
    for first, last in pairwise([*range(0, tokens, hardware.loss_chunk_rows), tokens]):
        for weight, slope in tables:
            shape = (last - first, weight.shape[0])
            block = logits[: shape[0] * shape[1]].view(shape)
            head += _products(hidden[first:last], weight, block, slope if first else None)
    return layer * model.n_layer + head


def _products(
    input_NI: Tensor, weight_OI: Tensor, output_NO: Tensor, total_OI: Tensor | None = None
) -> list[Task]:
    """Salida, derivada de la entrada y derivada de los pesos, que con `total_OI` se suma a él."""
    back_NI = torch.empty_like(input_NI)
    slope_OI = torch.empty_like(weight_OI)

    def forward() -> Tensor:
        return torch.mm(input_NI, weight_OI.T, out=output_NO)

    def back() -> Tensor:
        return torch.mm(output_NO, weight_OI, out=back_NI)

    def slope() -> Tensor:
        if total_OI is None:
            return torch.mm(output_NO.T, input_NI, out=slope_OI)
        return torch.addmm(total_OI, output_NO.T, input_NI, out=total_OI)

    return [forward, back, slope]


def _attention(model: ModelConfig, batch: int, make: Make) -> Task:
    """La atención causal de una capa, con las claves sin repetir, y su vuelta atrás."""
    counts = (model.n_head, model.n_kv_head, model.n_kv_head)
    q_BHTD, k_BHTD, v_BHTD = (
        make(batch, count, model.seq_len, model.head_dim).requires_grad_() for count in counts
    )
    slope_BHTD = make(*q_BHTD.shape)

    def run() -> object:
        out_BHTD = F.scaled_dot_product_attention(
            q_BHTD, k_BHTD, v_BHTD, is_causal=True, enable_gqa=True
        )
        return torch.autograd.grad(out_BHTD, (q_BHTD, k_BHTD, v_BHTD), slope_BHTD)

    return run
