"""El modelo: API, posiciones, causalidad y GQA."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.errors import ConfigError
from enlace.model.layers import Attention
from enlace.model.loss import IGNORED
from enlace.model.transformer import Transformer, apply_rope, build_rope_cache, expands_kv
from tests.model.models import build_model, model_config, random_ids

BACKENDS = ["math", "mem_efficient", "flash", "cudnn"]


# API


def test_logits_o_perdida() -> None:
    model, ids = build_model(), random_ids()
    logits, nothing = model(ids)
    assert nothing is None
    assert logits.shape == (2, 16, 256)
    nothing, loss = model(ids, ids)
    assert nothing is None
    assert loss.shape == ()
    assert loss.dtype == torch.float32


def test_la_perdida_es_la_entropia_cruzada_de_los_logits() -> None:
    model, ids = build_model(z_loss_weight=0.01), random_ids()
    targets = ids.roll(-1, 1)
    targets[0, 4:9] = IGNORED
    logits = model(ids)[0].flatten(0, 1).double()
    ce = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)
    z = logits.logsumexp(1)[targets.flatten() != IGNORED].square().mean()
    torch.testing.assert_close(model(ids, targets)[1].double(), ce + 0.01 * z, rtol=1e-6, atol=0)
    model.eval()
    torch.testing.assert_close(model(ids, targets)[1].double(), ce, rtol=1e-6, atol=0)
    model.train()
    with torch.no_grad():
        torch.testing.assert_close(model(ids, targets)[1].double(), ce, rtol=1e-6, atol=0)


def test_todo_ignorado_da_cero_con_grafo() -> None:
    model, ids = build_model(), random_ids()
    _, loss = model(ids, torch.full_like(ids, IGNORED))
    loss.backward()
    assert loss.item() == 0
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_las_filas_por_bloque_no_cambian_la_perdida() -> None:
    ids = random_ids()
    losses = []
    for rows in (1, 7, 512):
        torch.manual_seed(3)
        losses.append(Transformer(model_config(), "flash", loss_chunk_rows=rows)(ids, ids)[1])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=0)
    torch.testing.assert_close(losses[0], losses[2], rtol=1e-6, atol=0)


def test_demasiados_tokens() -> None:
    model = build_model()
    model(random_ids(length=32))
    with pytest.raises(ValueError, match="33 tokens supera seq_len=32"):
        model(random_ids(length=33))


@pytest.mark.parametrize("wrong", [256, -1])
def test_id_fuera_del_vocabulario(wrong: int) -> None:
    ids = random_ids()
    ids[1, 3] = wrong
    with pytest.raises(ValueError, match=f"el id {wrong} no está en el vocabulario"):
        build_model()(ids)


def test_ids_sin_dimension_de_batch() -> None:
    with pytest.raises(ValueError, match="secuencias, tokens"):
        build_model()(random_ids()[0])


def test_modulos_con_nombre_publico() -> None:
    model = build_model()
    attn = model.blocks[1].attn
    assert isinstance(attn, Attention)
    assert attn.n_rep == 2
    assert attn.wq.weight.shape == attn.wo.weight.shape == (32, 32)
    assert attn.wk.weight.shape == attn.wv.weight.shape == (16, 32)
    assert model.tok_emb.weight.shape == model.lm_head.weight.shape == (256, 32)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]


# Posiciones


def test_rope_gira_pares_como_numeros_complejos() -> None:
    length, width, theta = 12, 8, 100.0
    cos, sin = build_rope_cache(length, width, theta)
    x = torch.randn(2, 3, length, width, generator=torch.Generator().manual_seed(0))
    pairs = torch.complex(x[..., : width // 2], x[..., width // 2 :]).to(torch.complex128)
    angles = torch.arange(length)[:, None] * theta ** (-torch.arange(0, width, 2) / width).double()
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat((turned.real, turned.imag), dim=-1).float()
    torch.testing.assert_close(apply_rope(x, cos, sin), expected, rtol=1e-5, atol=1e-5)


def test_rope_solo_depende_de_la_distancia() -> None:
    cos, sin = build_rope_cache(64, 16, 10000.0)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=generator).unbind(0)
    scores = apply_rope(q.expand(1, 1, 64, 16), cos, sin) @ apply_rope(
        k.expand(1, 1, 64, 16), cos, sin
    ).transpose(-1, -2)
    for distance in (0, 5, 20):
        diagonal = scores[0, 0].diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-4)


def test_rope_calcula_en_fp32_con_entradas_de_16_bits() -> None:
    """Con tablas en fp16 el ángulo de las posiciones altas sería otro."""
    cos, sin = build_rope_cache(2048, 64, 10000.0)
    assert cos.dtype == sin.dtype == torch.float32
    x = torch.randn(1, 1, 2048, 64, generator=torch.Generator().manual_seed(0))
    half = x.half()
    turned = apply_rope(half, cos, sin)
    assert turned.dtype == torch.float16
    assert torch.equal(turned, apply_rope(half.float(), cos, sin).half())


# Atención


def test_seleccion_de_la_expansion_de_kv() -> None:
    assert {name: expands_kv(name) for name in BACKENDS} == {
        "math": False,
        "mem_efficient": True,
        "flash": False,
        "cudnn": False,
    }
    with pytest.raises(ConfigError, match=r"hardware\.sdpa_backend='xformers' no existe"):
        expands_kv("xformers")


def test_mem_efficient_no_pide_gqa_y_los_demas_si(monkeypatch: pytest.MonkeyPatch) -> None:
    """En CPU las dos formas funcionan; en GPU, mem_efficient con enable_gqa caería a math."""
    calls: list[tuple[int, bool]] = []
    original = F.scaled_dot_product_attention

    def spy(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        calls.append((k.shape[1], options["enable_gqa"]))
        return original(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    for backend in BACKENDS:
        build_model(backend)(random_ids())
    assert calls == [(2, True)] * 2 + [(4, False)] * 2 + [(2, True)] * 4


def test_todos_los_nucleos_dan_lo_mismo_en_cpu() -> None:
    ids = random_ids()
    expected = build_model("math")(ids)[0]
    for backend in BACKENDS[1:]:
        torch.testing.assert_close(build_model(backend)(ids)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", ["flash", "mem_efficient"])
@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_orden_de_las_cabezas_contra_un_bucle(n_kv_head: int, backend: str) -> None:
    model = build_model(backend, n_kv_head=n_kv_head)
    attn = model.blocks[0].attn
    assert isinstance(attn, Attention)
    cos, sin = model.rope_cos[:10], model.rope_sin[:10]
    x = torch.randn(2, 10, 32, generator=torch.Generator().manual_seed(0))
    width = attn.head_dim
    assert attn.q_norm is not None
    assert attn.k_norm is not None
    heads = []
    for head in range(4):
        kv_head = head * n_kv_head // 4
        rows, kv_rows = (slice(h * width, (h + 1) * width) for h in (head, kv_head))
        q = apply_rope(attn.q_norm(x @ attn.wq.weight[rows].T)[:, None], cos, sin)[:, 0]
        k = apply_rope(attn.k_norm(x @ attn.wk.weight[kv_rows].T)[:, None], cos, sin)[:, 0]
        v = x @ attn.wv.weight[kv_rows].T
        scores = q @ k.transpose(1, 2) / math.sqrt(width)
        future = torch.ones(10, 10, dtype=torch.bool).triu(1)
        heads.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v)
    expected = torch.cat(heads, dim=-1) @ attn.wo.weight.T
    torch.testing.assert_close(attn(x, cos, sin), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["flash", "mem_efficient"])
def test_es_causal(backend: str) -> None:
    model, ids = build_model(backend), random_ids()
    changed = ids.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 256
    before, after = model(ids)[0], model(changed)[0]
    torch.testing.assert_close(before[:, :9], after[:, :9], rtol=0, atol=1e-6)
    assert (before[:, 9:] - after[:, 9:]).abs().amax(-1).min() > 1e-4
