"""El modelo: precisión bajo autocast, pesos compartidos, valores iniciales y dropout."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from enlace.errors import CheckpointError
from enlace.model import transformer
from enlace.model.layers import RMSNorm
from enlace.model.transformer import Transformer
from tests.model.models import build_model, random_ids

BACKENDS = ["math", "mem_efficient", "flash", "cudnn"]


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
    model, ids = build_model(), random_ids()
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
    ids = random_ids()
    targets = ids.roll(-1, 1)
    exact, model = build_model(qk_norm=qk_norm), build_model(qk_norm=qk_norm)
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
    ids = random_ids()
    tied, split = build_model(tie_embeddings=True), build_model(tie_embeddings=False)
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
    model, ids = build_model(), random_ids()
    assert _is_tied(model)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    saved = load_file(tmp_path / "model.safetensors")

    for assign in (False, True):
        other = build_model(seed=9)
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
    model = build_model(tie_embeddings=False)
    assert model.lm_head.weight is not model.tok_emb.weight
    other = build_model(seed=9, tie_embeddings=False)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other.lm_head.weight, model.lm_head.weight)


def test_carga_estricta() -> None:
    model = build_model()
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
@pytest.mark.slow
def test_compilar_los_bloques_no_cambia_nombres_ni_resultado() -> None:
    model, ids = build_model(), random_ids()
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
    model = build_model(**size)
    vocab = model.config.vocab_size
    ids = random_ids(rows=8, length=32, vocab=vocab)
    targets = random_ids(rows=8, length=32, vocab=vocab, seed=2)
    sums = model.loss_sums(ids, targets)
    assert abs(float(sums.ce / sums.count) - math.log(vocab)) < 0.15


@pytest.mark.slow
def test_la_perdida_inicial_de_tiny_50m() -> None:
    model = build_model(
        vocab_size=32768, n_layer=12, n_head=8, n_kv_head=2, d_model=512, ffn_multiple_of=128
    )
    ids, targets = random_ids(4, 32, 32768), random_ids(4, 32, 32768, seed=2)
    with torch.no_grad():
        assert abs(float(model(ids, targets)[1]) - math.log(32768)) < 0.15


def test_valores_iniciales() -> None:
    model = build_model(d_model=128, n_layer=4)
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
    one, same, other = build_model(seed=1), build_model(seed=1), build_model(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.tok_emb.weight, other.tok_emb.weight)
    one.initialize(torch.Generator().manual_seed(4))
    torch.manual_seed(99)
    other.initialize(torch.Generator().manual_seed(4))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_dropout_solo_al_entrenar() -> None:
    ids = random_ids()
    model = build_model(dropout=0.5)
    torch.manual_seed(0)
    first, second = model(ids)[0], model(ids)[0]
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(model(ids)[0], first)
    model.eval()
    still = build_model(dropout=0.0)
    still.load_state_dict(model.state_dict())
    assert torch.equal(model(ids)[0], still(ids)[0])


def test_el_modelo_no_impone_el_nucleo_de_atencion() -> None:
    """Lo impone quien entrena, una vez: el modelo solo prepara las claves."""
    source = Path(transformer.__file__).parent
    assert not [file for file in source.glob("*.py") if "sdpa_kernel(" in file.read_text("utf-8")]
