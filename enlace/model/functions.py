"""RMSNorm, RoPE y SwiGLU con su derivada escrita a mano: menos pasadas y menos tensores guardados.

Autograd deriva operación por operación: hacia atrás repite cada pasada intermedia y guarda lo que
cada una necesita. Aquí se guarda lo mínimo y el resto se vuelve a calcular al vuelo:

- RMSNorm guarda su entrada y 1/rms, un número por fila;
- RoPE no guarda nada: la inversa de un giro es el giro contrario;
- silu(a)·b guarda a y b, pero no silu(a).

Son las mismas fórmulas que las de torch, salvo el orden del redondeo. Al compilar se usan las
operaciones sueltas, que el compilador funde y de las que decide él qué guardar; y en CUDA, el
RMSNorm de torch, que ya es un solo núcleo y guarda lo mismo que este.

Letras de forma: B secuencias, H cabezas, T tokens, D head_dim, E la dimensión que se normaliza.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812


def rms_norm(x: Tensor, weight_E: Tensor, eps: float) -> Tensor:
    """De x (..., E) a x / √(media(x²) + eps) · peso, sobre la última dimensión y en su dtype."""
    if x.is_cuda or torch.compiler.is_compiling():
        return F.rms_norm(x, weight_E.shape, weight_E, eps)
    y: Tensor = _RMSNorm.apply(x, weight_E, eps)
    return y


def rotate(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor, dtype: torch.dtype) -> Tensor:
    """Gira cada par (i, i + D/2) de x (B, H, T, D): calcula en el dtype de las tablas (T, D).

    Devuelve `dtype`. Las dos mitades de cada fila de `sin_TD` deben ser iguales.
    """
    if torch.compiler.is_compiling():
        x = x_BHTD.to(cos_TD.dtype)
        first, second = x.chunk(2, dim=-1)
        return (x * cos_TD + torch.cat((-second, first), dim=-1) * sin_TD).to(dtype)
    y_BHTD: Tensor = _Rotate.apply(x_BHTD, cos_TD, sin_TD, dtype)
    return y_BHTD


def gated_silu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, elemento a elemento, en su dtype."""
    if torch.compiler.is_compiling():
        plain: Tensor = F.silu(gate) * up
        return plain
    y: Tensor = _GatedSilu.apply(gate, up)
    return y


class _RMSNorm(torch.autograd.Function):
    """Con r = 1/rms, g = dy·w y E elementos por fila: dx = r·g − x·r³·Σ(g·x)/E y dw = Σ dy·x·r."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_E: Tensor, eps: float) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        rstd: Tensor = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight_E, rstd)
        return (x * rstd).mul_(weight_E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight_E, rstd = ctx.saved_tensors
        buffer = (dy * x).mul_(rstd)
        dx = dweight = None
        if ctx.needs_input_grad[1]:
            # Con `sum` y no con un producto: entre decenas de miles de filas redondea mucho menos.
            dweight = buffer.flatten(0, -2).sum(0)
        if ctx.needs_input_grad[0]:
            share = (buffer @ weight_E)[..., None].mul_(rstd.square()).div_(x.shape[-1])
            dx = torch.mul(dy, weight_E, out=buffer).mul_(rstd).addcmul_(x, share, value=-1)
        return dx, dweight, None


class _Rotate(torch.autograd.Function):
    """y₁ = x₁·cos − x₂·sin, y₂ = x₂·cos + x₁·sin; hacia atrás, lo mismo con el ángulo opuesto."""

    @staticmethod
    def forward(
        ctx: Any, x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor, dtype: torch.dtype
    ) -> Tensor:
        ctx.save_for_backward(cos_TD, sin_TD)
        ctx.dtype = x_BHTD.dtype
        return _turned(x_BHTD, cos_TD, sin_TD, 1).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_BHTD: Tensor) -> tuple[Tensor, None, None, None]:
        cos_TD, sin_TD = ctx.saved_tensors
        return _turned(dy_BHTD, cos_TD, sin_TD, -1).to(ctx.dtype), None, None, None


class _GatedSilu(torch.autograd.Function):
    """dup = dy·silu(gate), dgate = dy·up·silu′(gate)."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        dgate = torch.ops.aten.silu_backward(dy * up, gate)
        return dgate, F.silu(gate).mul_(dy)


def _turned(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor, direction: int) -> Tensor:
    """El giro, o con `direction` = −1 el contrario, en el dtype de las tablas."""
    y_BHTD = x_BHTD * cos_TD
    x = x_BHTD.to(y_BHTD.dtype)
    half = x.shape[-1] // 2
    sin_TD = sin_TD[..., :half]
    y_BHTD[..., :half].addcmul_(x[..., half:], sin_TD, value=-direction)
    y_BHTD[..., half:].addcmul_(x[..., :half], sin_TD, value=direction)
    return y_BHTD
