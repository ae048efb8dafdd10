"""Las derivadas escritas a mano, contra las fórmulas sueltas en float64 y contra gradcheck."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F  # noqa: N812

from enlace.model.functions import gated_silu, rms_norm, rotate
from enlace.model.layers import build_rope_cache

EPS = 1e-5
COS, SIN = build_rope_cache(6, 8, 100.0)


def _plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def _plain_rotation(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * COS.to(x.dtype) + torch.cat((-second, first), -1) * SIN.to(x.dtype)


def _rotation(x: Tensor) -> Tensor:
    tables = (COS.double(), SIN.double()) if x.dtype == torch.float64 else (COS, SIN)
    return rotate(x, *tables, x.dtype)


CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "norma": (lambda x, w: rms_norm(x, w, EPS), _plain_norm, [(3, 5, 8), (8,)]),
    "giro": (_rotation, _plain_rotation, [(2, 3, 6, 8)]),
    "silu": (gated_silu, lambda a, b: F.silu(a) * b, [(3, 5, 8), (3, 5, 8)]),
}


def _inputs(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.to(dtype).requires_grad_() for tensor in drawn]


def _results(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """La salida y los gradientes con un dy al azar."""
    output = function(*inputs)
    generator = torch.Generator().manual_seed(4)
    upstream = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return [output.detach(), *torch.autograd.grad(output, inputs, upstream.to(output.dtype))]


@pytest.mark.parametrize("name", CASES)
def test_salida_y_gradientes_iguales_en_fp64(name: str) -> None:
    ours, plain, shapes = CASES[name]
    found, expected = _results(ours, _inputs(shapes)), _results(plain, _inputs(shapes))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(ours, _inputs(shapes))


@pytest.mark.parametrize("name", CASES)
def test_en_fp32_solo_se_aparta_el_redondeo(name: str) -> None:
    ours, plain, shapes = CASES[name]
    found = _results(ours, _inputs(shapes, torch.float32))
    for one, exact in zip(found, _results(plain, _inputs(shapes)), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), exact, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_da_igual_el_orden_en_memoria(name: str, order: tuple[int, int, int]) -> None:
    ours, _, shapes = CASES[name]
    expected = _results(ours, _inputs(shapes))
    moved = [
        tensor if tensor.ndim < 3 else _reordered(tensor.detach(), order).requires_grad_()
        for tensor in _inputs(shapes)
    ]
    for one, other in zip(_results(ours, moved), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def _reordered(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """El mismo tensor con otros pasos: como lo deja `transpose` tras un producto."""
    order = (*order, *range(len(order), tensor.ndim))
    inverse = sorted(range(tensor.ndim), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(inverse)


@pytest.mark.parametrize(
    ("name", "extra"), [("norma", 15), ("giro", 0), ("silu", 0)], ids=["norma", "giro", "silu"]
)
def test_solo_se_guardan_las_entradas(name: str, extra: int) -> None:
    """Y de la norma, además, un número por fila; del giro, solo las tablas."""
    ours, _, shapes = CASES[name]
    inputs = _inputs(shapes, torch.float32)
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        ours(*inputs)
    known = {tensor.data_ptr() for tensor in (*inputs, COS, SIN)}
    assert sum(tensor.numel() for tensor in saved if tensor.data_ptr() not in known) == extra
    if name == "giro":
        assert all(tensor.data_ptr() != inputs[0].data_ptr() for tensor in saved)


def test_cada_gradiente_solo_si_se_pide() -> None:
    x, weight = _inputs([(4, 8), (8,)])
    full = _results(lambda x, weight: rms_norm(x, weight, EPS), [x, weight])
    only_x = torch.autograd.grad(rms_norm(x, weight.detach(), EPS).sum(), x)
    only_weight = torch.autograd.grad(rms_norm(x.detach(), weight, EPS).sum(), weight)
    both = torch.autograd.grad(rms_norm(x, weight, EPS).sum(), (x, weight))
    assert torch.equal(only_x[0], both[0])
    assert torch.equal(only_weight[0], both[1])
    assert len(full) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_en_16_bits_el_giro_calcula_en_fp32(dtype: torch.dtype) -> None:
    (x,) = _inputs([(2, 3, 6, 8)], dtype)
    turned, gradient = _results(lambda x: rotate(x, COS, SIN, dtype), [x])
    exact, exact_gradient = _results(_plain_rotation, [x.detach().float().requires_grad_()])
    assert gradient.dtype == turned.dtype == dtype
    assert torch.equal(turned, exact.to(dtype))
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    rounded = _plain_rotation_gradient(upstream.to(dtype).float())
    assert torch.equal(gradient, rounded.to(dtype))
    torch.testing.assert_close(exact_gradient, rounded, rtol=1e-2, atol=1e-2)


def _plain_rotation_gradient(upstream: Tensor) -> Tensor:
    x = torch.zeros_like(upstream).requires_grad_()
    (gradient,) = torch.autograd.grad(_plain_rotation(x), x, upstream)
    return gradient


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_en_16_bits_silu_da_los_mismos_bits(dtype: torch.dtype) -> None:
    ours, plain, shapes = CASES["silu"]
    found, expected = (
        _results(ours, _inputs(shapes, dtype)),
        _results(plain, _inputs(shapes, dtype)),
    )
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_sin_gradiente_dan_lo_mismo_y_no_guardan_nada(name: str) -> None:
    ours, _, shapes = CASES[name]
    inputs: list[Any] = _inputs(shapes, torch.float32)
    expected = ours(*inputs)
    for quiet in (torch.no_grad(), torch.inference_mode()):
        with quiet:
            output = ours(*inputs)
        assert not output.requires_grad
        assert torch.equal(output, expected)


def test_una_fila_de_ceros_no_da_nan() -> None:
    x = torch.zeros(2, 8, requires_grad=True)
    weight = torch.ones(8, requires_grad=True)
    rms_norm(x, weight, EPS).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.full((2, 8), EPS**-0.5))
