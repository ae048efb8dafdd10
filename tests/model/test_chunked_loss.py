"""La pérdida por bloques contra una referencia ingenua en float64."""

import math
from typing import Any

import pytest
import torch

from enlace.model.loss import IGNORED, linear_cross_entropy
from tests.model.support_loss import V, exact_loss, loss_case, loss_gradients


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("z_weight", [0.0, 1e-4, 0.5])
@pytest.mark.parametrize("chunk_columns", [None, 16, 1000])
@pytest.mark.parametrize("chunk_rows", [1, 8, 1000])
def test_sumas_y_gradientes_iguales_a_float64(
    chunk_rows: int, chunk_columns: int | None, z_weight: float, recompute: bool
) -> None:
    case = loss_case()
    expected, hidden_gradient, weight_gradient = exact_loss(*case, z_weight, upstream=0.25)
    sums, hidden, weight = loss_gradients(
        *case,
        upstream=0.25,
        z_weight=z_weight,
        chunk_rows=chunk_rows,
        chunk_columns=chunk_columns,
        recompute=recompute,
    )
    for name, value in expected.items():
        torch.testing.assert_close(getattr(sums, name).double(), value, rtol=1e-6, atol=0)
    assert sums.count.item() == (case[2] != IGNORED).sum().item()
    torch.testing.assert_close(hidden.double(), hidden_gradient, rtol=1e-5, atol=3e-6)
    torch.testing.assert_close(weight.double(), weight_gradient, rtol=1e-5, atol=3e-6)


def test_solo_el_objetivo_es_diferenciable_y_todo_es_fp32() -> None:
    hidden, weight, targets = loss_case()
    for dtype in (torch.float32, torch.float16):
        sums = linear_cross_entropy(
            hidden.to(dtype).requires_grad_(), weight, targets, z_weight=1e-4, chunk_rows=8
        )
        assert sums.objective.requires_grad
        assert not sums.ce.requires_grad
        assert not sums.z.requires_grad
        assert [value.dtype for value in sums] == [torch.float32] * 3 + [torch.int64]


def test_las_dos_maneras_dan_el_mismo_gradiente() -> None:
    case = loss_case()
    one = loss_gradients(*case, upstream=3.0, z_weight=1e-2, chunk_rows=8)
    other = loss_gradients(*case, upstream=3.0, z_weight=1e-2, chunk_rows=8, recompute=True)
    assert torch.equal(one[0].objective, other[0].objective)
    torch.testing.assert_close(one[1], other[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one[2], other[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 65536.0])
def test_16_bits_con_la_escala_de_la_perdida(dtype: torch.dtype, scale: float) -> None:
    hidden, weight, targets = loss_case(rows=256)
    hidden, weight = hidden.to(dtype), weight.to(dtype).float()
    upstream = scale / 256
    _, hidden_gradient, weight_gradient = exact_loss(hidden, weight, targets, 1e-4, upstream)
    sums, ours_hidden, ours_weight = loss_gradients(
        hidden, weight, targets, upstream, z_weight=1e-4, chunk_rows=32
    )
    assert ours_hidden.dtype == dtype
    assert ours_weight.dtype == torch.float32
    error = 2e-3 if dtype == torch.float16 else 1e-2
    for ours, exact in ((ours_hidden, hidden_gradient), (ours_weight, weight_gradient)):
        assert ours.isfinite().all()
        assert (ours.double() - exact).norm() < error * exact.norm()
    torch.testing.assert_close(
        sums.ce.double(), exact_loss(hidden, weight, targets, 0.0)[0]["ce"], rtol=1e-5, atol=0
    )


def test_la_escala_se_aplica_antes_de_redondear_a_fp16() -> None:
    """Redondear primero convierte en ceros el gradiente que la escala debía salvar."""
    rows, scale = 16, 65536.0
    hidden, weight, targets = loss_case(rows=rows)
    # El objetivo gana a los demás por unos 20 nats: sus probabilidades, ~2e-9, no caben en fp16.
    hidden[:, 0], weight[:, 0] = 1.0, 0.0
    hidden, weight = hidden.half(), (0.1 * weight).half().float()
    weight[0, 0] = 20.0
    targets[:] = 0
    probabilities = (hidden.float() @ weight.T).softmax(1)[:, 1:]
    assert not probabilities.half().any()

    exact = exact_loss(hidden, weight, targets, 0.0, scale / rows)
    _, hidden_gradient, weight_gradient = loss_gradients(
        hidden, weight, targets, scale / rows, z_weight=0.0, chunk_rows=8
    )
    error = (weight_gradient[1:].double() - exact[2][1:]).norm() / exact[2][1:].norm()
    assert error < 0.01
    assert hidden_gradient.any()


def test_objetivos_todos_ignorados() -> None:
    hidden, weight, targets = loss_case()
    for dtype in (torch.float32, torch.float16):
        sums, hidden_gradient, weight_gradient = loss_gradients(
            hidden.to(dtype), weight, torch.full_like(targets, IGNORED), z_weight=1e-4, chunk_rows=8
        )
        assert sums.objective.item() == sums.ce.item() == sums.z.item() == sums.count.item() == 0
        assert not hidden_gradient.any()
        assert not weight_gradient.any()


def test_las_filas_ignoradas_no_cuentan() -> None:
    hidden, weight, targets = loss_case()
    kept = targets != IGNORED
    whole = loss_gradients(hidden, weight, targets, z_weight=1e-2, chunk_rows=8)
    only = loss_gradients(hidden[kept], weight, targets[kept], z_weight=1e-2, chunk_rows=8)
    torch.testing.assert_close(whole[0].objective, only[0].objective)
    torch.testing.assert_close(whole[1][kept], only[1])
    torch.testing.assert_close(whole[2], only[2])
    assert not whole[1][~kept].any()


def test_la_perdida_no_depende_del_micro_batch() -> None:
    hidden, weight, targets = loss_case(rows=32)
    whole, whole_hidden, whole_weight = loss_gradients(
        hidden, weight, targets, z_weight=1e-2, chunk_rows=8
    )
    shared = weight.clone().requires_grad_()
    parts = []
    pieces = []
    for piece, target in zip(hidden.split(12), targets.split(12), strict=True):
        pieces.append(piece.clone().requires_grad_())
        parts.append(linear_cross_entropy(pieces[-1], shared, target, z_weight=1e-2, chunk_rows=8))
        parts[-1].objective.backward()
    assert sum(int(part.count) for part in parts) == int(whole.count)
    for name in ("objective", "ce", "z"):
        total = torch.stack([getattr(part, name).detach() for part in parts]).sum()
        torch.testing.assert_close(total, getattr(whole, name).detach())
    torch.testing.assert_close(shared.grad, whole_weight, rtol=1e-5, atol=1e-5)
    hidden_gradient = torch.cat([piece.grad for piece in pieces if piece.grad is not None])
    torch.testing.assert_close(hidden_gradient, whole_hidden)


def test_solo_se_calcula_el_gradiente_que_hace_falta() -> None:
    hidden, weight, targets = loss_case()
    _, full_hidden, full_weight = loss_gradients(
        hidden, weight, targets, z_weight=0.1, chunk_rows=8
    )
    for recompute in (False, True):
        leaf = hidden.clone().requires_grad_()
        options: dict[str, Any] = {"z_weight": 0.1, "chunk_rows": 8, "recompute": recompute}
        linear_cross_entropy(leaf, weight, targets, **options).objective.backward()
        torch.testing.assert_close(leaf.grad, full_hidden)
        leaf = weight.clone().requires_grad_()
        linear_cross_entropy(hidden, leaf, targets, **options).objective.backward()
        torch.testing.assert_close(leaf.grad, full_weight)


def test_bajo_autocast_no_cambia_nada() -> None:
    case = loss_case()
    plain = loss_gradients(*case, z_weight=1e-4, chunk_rows=8)
    with torch.autocast("cpu", dtype=torch.float16):
        wrapped = loss_gradients(*case, z_weight=1e-4, chunk_rows=8)
        recomputed = loss_gradients(*case, z_weight=1e-4, chunk_rows=8, recompute=True)
    assert torch.equal(plain[0].objective, wrapped[0].objective)
    assert torch.equal(plain[1], wrapped[1])
    assert torch.equal(plain[2], wrapped[2])
    torch.testing.assert_close(plain[2], recomputed[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
def test_logits_enormes_no_desbordan(recompute: bool) -> None:
    hidden, weight, targets = loss_case()
    expected, hidden_gradient, _ = exact_loss(300 * hidden, weight, targets, 1e-4)
    sums, ours, _ = loss_gradients(
        300 * hidden, weight, targets, z_weight=1e-4, chunk_rows=8, recompute=recompute
    )
    assert expected["ce"] > 1e4
    torch.testing.assert_close(sums.objective.double(), expected["objective"], rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.double(), hidden_gradient, rtol=1e-3, atol=1e-3)


def test_dos_backward_del_mismo_grafo() -> None:
    hidden, weight, targets = loss_case()
    weight.requires_grad_()
    sums = linear_cross_entropy(hidden, weight, targets, z_weight=1e-4, chunk_rows=8)
    sums.objective.backward(retain_graph=True)
    assert weight.grad is not None
    once = weight.grad.clone()
    sums.objective.backward()
    torch.testing.assert_close(weight.grad, 2 * once)


def test_un_nan_llega_a_la_perdida() -> None:
    hidden, weight, targets = loss_case()
    hidden[0, 0] = math.nan
    sums = linear_cross_entropy(hidden, weight, targets, z_weight=1e-4, chunk_rows=8)
    assert sums.ce.isnan()


@pytest.mark.parametrize("wrong", [V, -1, -101])
def test_objetivo_fuera_del_vocabulario(wrong: int) -> None:
    hidden, weight, targets = loss_case()
    targets[5] = wrong
    with pytest.raises(ValueError, match=f"el objetivo {wrong} no está en el vocabulario"):
        linear_cross_entropy(hidden, weight, targets, z_weight=0.0, chunk_rows=8)


def test_bloques_de_cero_filas_o_columnas() -> None:
    with pytest.raises(ValueError, match="chunk_rows=0"):
        linear_cross_entropy(*loss_case(), z_weight=0.0, chunk_rows=0)
    with pytest.raises(ValueError, match="chunk_columns=0"):
        linear_cross_entropy(*loss_case(), z_weight=0.0, chunk_rows=8, chunk_columns=0)
