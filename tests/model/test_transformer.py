"""El modelo: API, posiciones, causalidad, GQA, precisión, pesos compartidos e inicio."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.config.schema import ModelConfig
from enlace.errors import CheckpointError, ConfigError
from enlace.model import transformer
from enlace.model.layers import Attention, RMSNorm
from enlace.model.loss import IGNORED
from enlace.model.transformer import Transformer, apply_rope, build_rope_cache, expands_kv
from tests.support import tiny_values

BACKENDS = ["math", "mem_efficient", "flash", "cudnn"]


def _config(**changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(tiny_values()["model"] | changes)


def _model(sdpa_backend: str = "flash", seed: int = 3, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(_config(**changes), sdpa_backend)


def _ids(rows: int = 2, length: int = 16, vocab: int = 256, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (rows, length), generator=generator)


# API


def test_logits_o_perdida() -> None:
    model, ids = _model(), _ids()
    logits, nothing = model(ids)
    assert nothing is None
    assert logits.shape == (2, 16, 256)
    nothing, loss = model(ids, ids)
    assert nothing is None
    assert loss.shape == ()
    assert loss.dtype == torch.float32


def test_la_perdida_es_la_entropia_cruzada_de_los_logits() -> None:
    model, ids = _model(z_loss_weight=0.01), _ids()
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
    model, ids = _model(), _ids()
    _, loss = model(ids, torch.full_like(ids, IGNORED))
    loss.backward()
    assert loss.item() == 0
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_las_filas_por_bloque_no_cambian_la_perdida() -> None:
    ids = _ids()
    losses = []
    for rows in (1, 7, 512):
        torch.manual_seed(3)
        losses.append(Transformer(_config(), "flash", loss_chunk_rows=rows)(ids, ids)[1])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=0)
    torch.testing.assert_close(losses[0], losses[2], rtol=1e-6, atol=0)


def test_demasiados_tokens() -> None:
    model = _model()
    model(_ids(length=32))
    with pytest.raises(ValueError, match="33 tokens supera seq_len=32"):
        model(_ids(length=33))


@pytest.mark.parametrize("wrong", [256, -1])
def test_id_fuera_del_vocabulario(wrong: int) -> None:
    ids = _ids()
    ids[1, 3] = wrong
    with pytest.raises(ValueError, match=f"el id {wrong} no está en el vocabulario"):
        _model()(ids)


def test_ids_sin_dimension_de_batch() -> None:
    with pytest.raises(ValueError, match="secuencias, tokens"):
        _model()(_ids()[0])


def test_modulos_con_nombre_publico() -> None:
    model = _model()
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
        _model(backend)(_ids())
    assert calls == [(2, True)] * 2 + [(4, False)] * 2 + [(2, True)] * 4


def test_todos_los_nucleos_dan_lo_mismo_en_cpu() -> None:
    ids = _ids()
    expected = _model("math")(ids)[0]
    for backend in BACKENDS[1:]:
        torch.testing.assert_close(_model(backend)(ids)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", ["flash", "mem_efficient"])
@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_orden_de_las_cabezas_contra_un_bucle(n_kv_head: int, backend: str) -> None:
    model = _model(backend, n_kv_head=n_kv_head)
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
    model, ids = _model(backend), _ids()
    changed = ids.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 256
    before, after = model(ids)[0], model(changed)[0]
    torch.testing.assert_close(before[:, :9], after[:, :9], rtol=0, atol=1e-6)
    assert (before[:, 9:] - after[:, 9:]).abs().amax(-1).min() > 1e-4


# Precisión


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rmsnorm_calcula_en_fp32_y_no_desborda(dtype: torch.dtype) -> None:
    norm = RMSNorm(16, 1e-5)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).mul(1000).to(dtype)
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt()
    with torch.autocast("cpu", dtype=dtype):
        result = norm(x)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), exact, rtol=1e-6, atol=1e-6)


def test_bajo_autocast_los_productos_son_de_16_bits_y_lo_demas_fp32() -> None:
    model, ids = _model(), _ids()
    dtypes: dict[str, tuple[torch.dtype, torch.dtype]] = {}
    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(
                lambda _m, args, out, name=name: (
                    dtypes.update({name: (args[0].dtype, out.dtype)})
                    if isinstance(out, Tensor)
                    else None
                )
            )
    with torch.autocast("cpu", dtype=torch.float16):
        sums = model.loss_sums(ids, ids)
        hidden = model.hidden_states(ids)
        logits, _ = model(ids)
    half, full = torch.float16, torch.float32
    assert sums.objective.dtype == logits.dtype == full
    assert hidden.dtype == half
    for i in range(2):
        assert dtypes[f"blocks.{i}"] == (full, full)
        for norm in ("attn_norm", "mlp_norm"):
            assert dtypes[f"blocks.{i}.{norm}"] == (full, full)
        for norm in ("attn.q_norm", "attn.k_norm"):
            assert dtypes[f"blocks.{i}.{norm}"] == (half, full)
        for linear in ("attn.wq", "attn.wk", "attn.wv", "attn.wo", "mlp.w_gate", "mlp.w_down"):
            assert dtypes[f"blocks.{i}.{linear}"] == (half, half)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_un_paso_fp16_con_escala_se_parece_al_de_fp32(qk_norm: bool) -> None:
    """Pérdida y gradientes bajo autocast fp16 con escala 2¹⁶, contra fp32."""
    ids = _ids()
    targets = ids.roll(-1, 1)
    exact, model = _model(qk_norm=qk_norm), _model(qk_norm=qk_norm)
    sums = exact.loss_sums(ids, targets)
    (sums.objective / sums.count).backward()
    with torch.autocast("cpu", dtype=torch.float16):
        half = model.loss_sums(ids, targets)
    torch.testing.assert_close(half.objective, sums.objective, rtol=1e-3, atol=0)
    (half.objective / half.count * 65536).backward()
    theirs = dict(exact.named_parameters())
    for name, parameter in model.named_parameters():
        reference = theirs[name].grad
        assert parameter.grad is not None
        assert reference is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name
        error = (parameter.grad / 65536 - reference).norm() / reference.norm()
        assert error < 0.01, name


def test_los_embeddings_compartidos_reciben_los_dos_gradientes() -> None:
    ids = _ids()
    tied, split = _model(tie_embeddings=True), _model(tie_embeddings=False)
    split.load_state_dict(tied.state_dict() | {"lm_head.weight": tied.tok_emb.weight})
    for model in (tied, split):
        for rows in ids.split(1):  # dos micro-batches
            model.loss_sums(rows, rows).objective.backward()
    assert tied.tok_emb.weight.grad is not None
    assert split.tok_emb.weight.grad is not None
    assert split.lm_head.weight.grad is not None
    total = split.tok_emb.weight.grad + split.lm_head.weight.grad
    torch.testing.assert_close(tied.tok_emb.weight.grad, total, rtol=1e-5, atol=1e-5)
    assert split.tok_emb.weight.grad.abs().max() > 1e-2


# Pesos compartidos y guardados


def _is_tied(model: Transformer) -> bool:
    one_object = model.lm_head.weight is model.tok_emb.weight
    return one_object and "lm_head.weight" not in model.state_dict()


def test_los_pesos_compartidos_siguen_siendo_uno(tmp_path: Path) -> None:
    model, ids = _model(), _ids()
    assert _is_tied(model)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    saved = load_file(tmp_path / "model.safetensors")

    for assign in (False, True):
        other = _model(seed=9)
        other.load_state_dict(saved, strict=True, assign=assign)
        assert _is_tied(other)
        assert torch.equal(other(ids)[0], model(ids)[0])

    assert _is_tied(copy.deepcopy(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(ids, ids)[1].backward()
    optimizer.step()
    assert _is_tied(model)
    assert not torch.equal(model.tok_emb.weight, saved["tok_emb.weight"])


def test_sin_compartir_se_guardan_los_dos() -> None:
    model = _model(tie_embeddings=False)
    assert model.lm_head.weight is not model.tok_emb.weight
    other = _model(seed=9, tie_embeddings=False)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other.lm_head.weight, model.lm_head.weight)


def test_carga_estricta() -> None:
    model = _model()
    state = model.state_dict()
    with pytest.raises(RuntimeError, match=r"blocks\.0\.attn\.wq\.weight"):
        model.load_state_dict({k: v for k, v in state.items() if k != "blocks.0.attn.wq.weight"})
    with pytest.raises(RuntimeError, match=r"_orig_mod\.tok_emb\.weight"):
        model.load_state_dict({f"_orig_mod.{key}": value for key, value in state.items()})
    with pytest.raises(RuntimeError, match=r"tok_emb\.weight"):
        model.load_state_dict({k: v for k, v in state.items() if k != "tok_emb.weight"})
    model.load_state_dict(state | {"lm_head.weight": state["tok_emb.weight"].clone()})
    with pytest.raises(CheckpointError, match="tie_embeddings: false"):
        model.load_state_dict(state | {"lm_head.weight": state["tok_emb.weight"] + 1})


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compilar_los_bloques_no_cambia_nombres_ni_resultado() -> None:
    model, ids = _model(), _ids()
    names = list(model.state_dict())
    expected = model(ids, ids)[1]
    expected.backward()
    gradient = model.tok_emb.weight.grad
    assert gradient is not None
    model.zero_grad(set_to_none=True)
    for block in model.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    loss = model(ids, ids)[1]
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(model.tok_emb.weight.grad, gradient)
    assert list(model.state_dict()) == names
    assert _is_tied(model)


# Inicio


@pytest.mark.parametrize(
    "size",
    [
        {},
        {"vocab_size": 4096, "d_model": 128, "n_layer": 4, "seq_len": 64},
        {"vocab_size": 4096, "d_model": 128, "n_layer": 4, "tie_embeddings": False},
    ],
)
def test_la_perdida_de_un_modelo_nuevo_es_ln_v(size: dict[str, Any]) -> None:
    model = _model(**size)
    vocab = model.config.vocab_size
    ids = _ids(rows=8, length=32, vocab=vocab)
    targets = _ids(rows=8, length=32, vocab=vocab, seed=2)
    sums = model.loss_sums(ids, targets)
    assert abs(float(sums.ce / sums.count) - math.log(vocab)) < 0.15


@pytest.mark.slow
def test_la_perdida_inicial_de_tiny_50m() -> None:
    model = _model(
        vocab_size=32768, n_layer=12, n_head=8, n_kv_head=2, d_model=512, ffn_multiple_of=128
    )
    ids, targets = _ids(4, 32, 32768), _ids(4, 32, 32768, seed=2)
    with torch.no_grad():
        assert abs(float(model(ids, targets)[1]) - math.log(32768)) < 0.15


def test_valores_iniciales() -> None:
    model = _model(d_model=128, n_layer=4)
    for name, weight in model.named_parameters():
        parameter = weight.detach()
        if parameter.ndim == 1:
            assert (parameter == 1).all(), name
            continue
        residual = name.endswith(("wo.weight", "w_down.weight"))
        expected = 0.02 / math.sqrt(8) if residual else 0.02
        assert abs(float(parameter.std()) / expected - 1) < 0.05, name
        assert abs(float(parameter.mean())) < 0.05 * expected, name


def test_los_pesos_iniciales_salen_de_la_semilla() -> None:
    one, same, other = _model(seed=1), _model(seed=1), _model(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.tok_emb.weight, other.tok_emb.weight)
    one.initialize(torch.Generator().manual_seed(4))
    torch.manual_seed(99)
    other.initialize(torch.Generator().manual_seed(4))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_dropout_solo_al_entrenar() -> None:
    ids = _ids()
    model = _model(dropout=0.5)
    torch.manual_seed(0)
    first, second = model(ids)[0], model(ids)[0]
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(model(ids)[0], first)
    model.eval()
    still = _model(dropout=0.0)
    still.load_state_dict(model.state_dict())
    assert torch.equal(model(ids)[0], still(ids)[0])


def test_el_modelo_no_impone_el_nucleo_de_atencion() -> None:
    """Lo impone quien entrena, una vez: el modelo solo prepara las claves."""
    source = Path(transformer.__file__).parent
    assert not [file for file in source.glob("*.py") if "sdpa_kernel(" in file.read_text("utf-8")]
