"""Las cuentas de `cost.py` contra el módulo, los FLOP que torch cuenta y lo que autograd guarda."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from enlace.backends import open_device
from enlace.config.schema import ModelConfig
from enlace.model import cost
from enlace.model.transformer import Transformer
from enlace.train.optim import build_optimizer
from tests.support import make_config, tiny_values


def _config(**changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(tiny_values()["model"] | changes)


TINY_50M = _config(
    vocab_size=32768,
    n_layer=12,
    n_head=8,
    n_kv_head=2,
    d_model=512,
    seq_len=2048,
    ffn_multiple_of=128,
)


def test_tiny_50m() -> None:
    assert TINY_50M.ffn_dim == 1408
    assert cost.parameter_count(TINY_50M) == 50_608_128
    with torch.device("meta"):
        assert Transformer(TINY_50M, "flash").num_parameters() == 50_608_128
    assert cost.state_bytes(TINY_50M, "adamw") == 16 * 50_608_128
    assert cost.checkpoint_bytes(TINY_50M, "adamw") == 12 * 50_608_128
    assert round(cost.flops_per_token(TINY_50M) / 1e6) == 379


@pytest.mark.parametrize("tie_embeddings", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("n_kv_head", [1, 4])
def test_parametros_iguales_a_los_del_modulo(
    n_kv_head: int, qk_norm: bool, tie_embeddings: bool
) -> None:
    config = _config(qk_norm=qk_norm, tie_embeddings=tie_embeddings, n_kv_head=n_kv_head)
    model = Transformer(config, "flash")
    assert cost.parameter_count(config) == model.num_parameters()
    matrices = sum(weight.numel() for weight in model.blocks[0].parameters() if weight.ndim == 2)
    assert cost.layer_matrix_parameters(config) == matrices


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_bytes_de_estado_iguales_a_los_del_optimizador(
    kind: cost.Optimizer, tie_embeddings: bool
) -> None:
    full = make_config({"train.optimizer": kind, "model.tie_embeddings": tie_embeddings})
    config, model = full.model, Transformer(full.model, "flash")
    optimizer = build_optimizer(model, full.train, open_device(full.hardware))
    ids = torch.zeros(1, 8, dtype=torch.int64)
    model(ids, ids)[1].backward()
    optimizer.step()
    parameters = list(model.parameters())
    moments = [
        value for state in optimizer.state.values() for key, value in state.items() if key != "step"
    ]
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    expected = sum(t.nbytes for t in (*parameters, *gradients, *moments))
    assert cost.state_bytes(config, kind) == expected
    assert cost.checkpoint_bytes(config, kind) == sum(t.nbytes for t in (*parameters, *moments))


def test_flops_de_newton_schulz_contra_el_contador_de_torch() -> None:
    config = make_config({"train.optimizer": "muon"})
    model = Transformer(config.model, "flash")
    optimizer = build_optimizer(model, config.train, open_device(config.hardware))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    counted = counter.get_total_flops()
    assert cost.newton_schulz_flops(config.model, config.train.muon_steps) == counted


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_flops_contra_el_contador_de_torch(tie_embeddings: bool) -> None:
    """El contador ve la atención entera (con `math`, como bmm) y no ve `addmm_`.

    Es el dW de cada bloque de filas, salvo el primero.
    """
    rows = 16
    config = _config(tie_embeddings=tie_embeddings)
    model = Transformer(config, "math", loss_chunk_rows=rows)
    ids = torch.zeros(2, config.seq_len, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids, ids)[1].backward()
    tokens, width = ids.numel(), config.d_model
    causal_half = 6 * config.n_layer * config.seq_len * width
    uncounted = 2 * config.vocab_size * width * (tokens - rows) // tokens
    counted = counter.get_total_flops() / tokens
    assert cost.flops_per_token(config) == counted - causal_half + uncounted


def _saved_bytes(model: nn.Module, ids: Tensor, dtype: str) -> int:
    """Bytes de los tensores distintos que autograd guarda, sin pesos, sus copias ni las tablas."""
    shared = {tensor.untyped_storage().data_ptr() for tensor in model.state_dict().values()}
    shared |= {tensor.untyped_storage().data_ptr() for tensor in model.buffers()}
    weight_shapes = {tuple(tensor.shape) for tensor in model.parameters()}
    weight_shapes |= {shape[::-1] for shape in weight_shapes}
    storages: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in shared and tuple(tensor.shape) not in weight_shapes:
            storages[storage.data_ptr()] = storage
        return tensor

    with (
        saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"),
    ):
        _, loss = model(ids, ids)
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("expand_kv", [True, False])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_activaciones_contra_lo_que_guarda_autograd(
    dtype: cost.Dtype, expand_kv: bool, qk_norm: bool
) -> None:
    config = _config(d_model=64, n_layer=3, n_kv_head=1, qk_norm=qk_norm)
    model = Transformer(config, "mem_efficient" if expand_kv else "flash")
    ids = torch.zeros(3, config.seq_len, dtype=torch.int64)
    measured = _saved_bytes(model, ids, dtype)
    expected = cost.activation_bytes(config, 3, dtype, expand_kv=expand_kv)
    assert abs(measured / expected - 1) < 0.05


def test_activaciones_lineales_en_el_micro_batch_y_menores_sin_expandir() -> None:
    one = cost.activation_bytes(TINY_50M, 1, "fp16", expand_kv=True)
    assert cost.activation_bytes(TINY_50M, 4, "fp16", expand_kv=True) == 4 * one
    # 21.3 KB por token y capa con mem_efficient, en fp16.
    assert 20_700 < cost.layer_activation_bytes(TINY_50M, "fp16", expand_kv=True) < 21_700
    saved = cost.layer_activation_bytes(TINY_50M, "fp16", True)
    saved -= cost.layer_activation_bytes(TINY_50M, "fp16", False)
    assert saved == 1536


def test_bytes_de_la_perdida_y_de_las_copias_de_16_bits() -> None:
    chunk, table = 512 * 32768, 32768 * 512
    assert cost.loss_bytes(TINY_50M, 512, "fp32") == 8 * chunk + 4 * table
    assert cost.loss_bytes(TINY_50M, 512, "fp16") == 10 * chunk + 8 * table
    assert cost.cast_weight_bytes(TINY_50M, "fp32") == 0
    norms = 12 * (2 * 512 + 2 * 64) + 512
    assert cost.cast_weight_bytes(TINY_50M, "fp16") == 2 * (50_608_128 - norms)


def test_las_cuentas_no_importan_torch() -> None:
    code = "import sys, enlace.model.cost; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
