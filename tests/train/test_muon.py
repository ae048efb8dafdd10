"""Muon: la iteración contra una descomposición en fp64, y el optimizador contra el de torch."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from enlace.backends import open_device
from enlace.train import muon
from enlace.train.muon import QUINTIC, RMS_MATCH, MuonAdamW, orthogonalize
from enlace.train.optim import build_optimizer
from tests.support import make_config

SHAPES = [(8, 8), (4, 24), (24, 4), (1, 16), (16, 1)]
STEPS = 5
LR, DECAY, MOMENTUM = 0.02, 0.1, 0.95


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_svd(matrix: Tensor, steps: int = STEPS) -> Tensor:
    """Lo que hace el polinomio: actuar sobre cada valor singular, ya dividido entre la norma."""
    u, s, vh = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.square().sum().sqrt().clamp_min(1e-300)
    a, b, c = QUINTIC
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    result: Tensor = u @ torch.diag(s) @ vh
    return result


def build(
    *matrices: Tensor, momentum: float = MOMENTUM, dtype: torch.dtype = torch.float32
) -> tuple[MuonAdamW, list[nn.Parameter]]:
    parameters = [nn.Parameter(matrix.clone()) for matrix in matrices]
    groups = [{"params": parameters, "rule": "muon", "weight_decay": DECAY, "lr_scale": 1.0}]
    groups += [{"params": [], "rule": "adamw", "weight_decay": 0.0, "lr_scale": 1.0}]
    optimizer = MuonAdamW(
        groups, lr=LR, momentum=momentum, ns_steps=STEPS, ns_dtype=dtype, adamw={}
    )
    return optimizer, parameters


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", [1, STEPS])
def test_es_el_polinomio_sobre_los_valores_singulares(shape: tuple[int, int], steps: int) -> None:
    x_BMN = gaussian(3, *shape)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        found = orthogonalize(x_BMN.to(dtype), steps, dtype)
        for one, matrix in zip(found, x_BMN, strict=True):
            torch.testing.assert_close(one.double(), by_svd(matrix, steps), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_los_valores_singulares_quedan_cerca_de_uno(dtype: torch.dtype) -> None:
    # De 1 a 0,02: los que no son despreciables frente a la norma.
    u, _, vh = torch.linalg.svd(gaussian(16, 48).double(), full_matrices=False)
    matrix = (u @ torch.diag(torch.logspace(0, -1.7, 16).double()) @ vh).float()
    found = torch.linalg.svdvals(orthogonalize(matrix[None], STEPS, dtype)[0].double())
    assert 0.6 < found.min() < found.max() < 1.25


def test_bf16_se_parece_a_fp32() -> None:
    x_BMN = gaussian(2, 16, 32)
    exact, rounded = (orthogonalize(x_BMN, STEPS, d) for d in (torch.float32, torch.bfloat16))
    assert rounded.dtype == torch.bfloat16
    error = (rounded.float() - exact).norm() / exact.norm()
    assert 0 < error < 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e30, 1e37])
def test_el_tamano_del_gradiente_no_importa(size: float, dtype: torch.dtype) -> None:
    # Una potencia de dos: ni siquiera cambia el redondeo.
    scale = 2.0 ** round(torch.tensor(size).log2().item())
    x_BMN = gaussian(1, 8, 12)
    assert torch.equal(
        orthogonalize(x_BMN * scale, STEPS, dtype), orthogonalize(x_BMN, STEPS, dtype)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_una_matriz_nula_da_cero_y_no_estorba_a_las_de_su_pila(dtype: torch.dtype) -> None:
    x_BMN = torch.stack([torch.zeros(8, 12), gaussian(8, 12)])
    found = orthogonalize(x_BMN, STEPS, dtype)
    assert torch.count_nonzero(found[0]) == 0
    assert torch.equal(found[1:], orthogonalize(x_BMN[1:], STEPS, dtype))
    assert torch.isfinite(orthogonalize(torch.full((1, 4, 4), 1e-45), STEPS, dtype)).all()


@pytest.mark.parametrize("shape", [(8, 8), (24, 6)])
def test_una_matriz_de_rango_uno_sigue_siendolo(shape: tuple[int, int]) -> None:
    left, right = gaussian(shape[0], 1), gaussian(1, shape[1], seed=1)
    found = orthogonalize((left @ right)[None], STEPS, torch.float32)[0]
    values = torch.linalg.svdvals(found.double())
    assert 0.6 < values[0] < 1.25
    assert values[1:].max() < 1e-3
    torch.testing.assert_close(found.double(), by_svd(left @ right), rtol=0, atol=1e-3)


def test_no_cambia_lo_que_recibe_ni_le_importa_como_este_en_memoria() -> None:
    x_BMN = gaussian(2, 6, 10)
    before = x_BMN.clone()
    found = orthogonalize(x_BMN, STEPS, torch.float32)
    assert torch.equal(x_BMN, before)
    for strange in (torch.zeros(2, 10, 6).mT, torch.zeros(2, 6, 20)[:, :, ::2]):
        assert not strange.is_contiguous()
        strange.copy_(x_BMN)
        torch.testing.assert_close(orthogonalize(strange, STEPS, torch.float32), found)


@pytest.mark.parametrize("shape", SHAPES)
def test_tres_pasos_son_la_formula_en_fp64(shape: tuple[int, int]) -> None:
    start = gaussian(*shape)
    optimizer, (weight,) = build(start)
    expected, mean = start.double(), torch.zeros(shape, dtype=torch.float64)
    for step in range(3):
        gradient = gaussian(*shape, seed=10 + step)
        weight.grad = gradient
        optimizer.step()
        mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient.double()
        ahead = MOMENTUM * mean + (1 - MOMENTUM) * gradient.double()
        expected = expected * (1 - LR * DECAY)
        expected = expected - LR * RMS_MATCH * max(shape) ** 0.5 * by_svd(ahead)
    torch.testing.assert_close(weight.double(), expected, rtol=0, atol=3e-5)
    torch.testing.assert_close(optimizer.state[weight]["momentum"].double(), mean)
    assert optimizer.state[weight].keys() == {"momentum"}


def test_tres_pasos_son_los_de_torch_con_la_precision_de_bf16() -> None:
    starts = [gaussian(*shape, seed=n) for n, shape in enumerate([(8, 8), (4, 24), (24, 4)])]
    optimizer, found = build(*starts, dtype=torch.bfloat16)
    expected = [nn.Parameter(start.clone()) for start in starts]
    reference = torch.optim.Muon(
        expected, lr=LR, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(3):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            one.grad = gaussian(*one.shape, seed=100 * step + number)
            other.grad = one.grad.clone()
        optimizer.step()
        reference.step()
    for one, other, start in zip(found, expected, starts, strict=True):
        moved = (other - start).norm()
        assert (one - other).norm() < 0.02 * moved
        buffer = reference.state[other]["momentum_buffer"]
        assert torch.equal(optimizer.state[one]["momentum"], buffer)


@pytest.mark.parametrize("shape", [(32, 32), (16, 96), (96, 16)])
def test_la_rms_de_la_actualizacion_es_la_de_adamw(shape: tuple[int, int]) -> None:
    optimizer, (weight,) = build(torch.zeros(shape))
    weight.grad = gaussian(*shape)
    optimizer.step()
    # Una matriz ortogonal M×N tiene RMS 1/√máx(M, N); el polinomio la deja algo por debajo.
    rms = weight.detach().square().mean().sqrt() / LR
    assert rms == pytest.approx(RMS_MATCH, rel=0.25)


def test_apilar_no_cambia_el_resultado(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = [
        gaussian(*shape, seed=n) for n, shape in enumerate([(6, 10), (10, 6), (6, 10), (4, 4)])
    ]
    outcomes = []
    for limit in (1, 130, 1 << 22):
        monkeypatch.setattr(muon, "STACK_ELEMENTS", limit)
        optimizer, parameters = build(*starts)
        for number, parameter in enumerate(parameters):
            parameter.grad = gaussian(*parameter.shape, seed=50 + number)
        optimizer.step()
        outcomes.append([parameter.detach() for parameter in parameters])
    for other in outcomes[1:]:
        for one, expected in zip(other, outcomes[0], strict=True):
            torch.testing.assert_close(one, expected, rtol=0, atol=1e-6)


def test_sin_gradiente_no_se_mueve_ni_guarda_estado() -> None:
    optimizer, (still, moved) = build(gaussian(4, 4), gaussian(4, 4, seed=1))
    moved.grad = gaussian(4, 4, seed=2)
    before = still.detach().clone()
    optimizer.step()
    assert torch.equal(still, before)
    assert list(optimizer.state) == [moved]


def test_lo_demas_se_mueve_como_con_adamw_y_su_parte_de_la_tasa() -> None:
    changes: dict[str, Any] = {"train.optimizer": "muon", "train.muon_adamw_lr_ratio": 0.25}
    config = make_config(changes)
    torch.manual_seed(0)
    model = nn.Module()
    model.blocks = nn.ModuleList([nn.Linear(4, 6)])
    model.head = nn.Linear(4, 3)
    twin = copy.deepcopy(model)
    backend = open_device(config.hardware)
    plain = make_config({"train.lr": 0.25 * config.train.lr}).train
    pairs = [(model, build_optimizer(model, config.train, backend), 0.25)]
    pairs += [(twin, build_optimizer(twin, plain, backend), 1.0)]
    for _ in range(2):
        for one, optimizer, _scale in pairs:
            for number, parameter in enumerate(one.parameters()):
                parameter.grad = gaussian(*parameter.shape, seed=number)
            for group in optimizer.param_groups:
                group["lr"] = group["lr_scale"] * (config.train.lr if one is model else plain.lr)
            optimizer.step()
    expected = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, expected[name]) == (name != "blocks.0.weight"), name
