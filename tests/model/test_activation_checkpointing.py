"""Recalcular activaciones: los mismos gradientes, con menos memoria y los FLOP que dice `cost`."""

import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from enlace.backends import open_device
from enlace.config.schema import Checkpointing, ModelConfig
from enlace.model import cost
from enlace.model.layers import Block
from enlace.model.transformer import Transformer
from enlace.train.trainer import build_training, train_step
from tests.model.models import random_ids
from tests.model.test_cost import TINY_50M
from tests.support import make_config, tiny_values
from tests.train.streams import PeriodicStream

MODES: tuple[Checkpointing, ...] = ("none", "mlp", "block")


def _model(checkpointing: Checkpointing, sdpa: str = "flash", **changes: Any) -> Transformer:
    config = ModelConfig.model_validate(tiny_values()["model"] | changes)
    torch.manual_seed(0)
    return Transformer(config, sdpa, 64, checkpointing)


def _gradients(
    model: Transformer, dtype: torch.dtype | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    ids = random_ids(rows=3, length=32)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        sums = model.loss_sums(ids, ids.roll(-1, 1))
    (sums.objective / sums.count).backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert len(gradients) == len(list(model.parameters()))
    return sums.objective.detach(), gradients


@pytest.mark.parametrize("mode", ["mlp", "block"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sdpa", ["math", "mem_efficient"])
def test_los_gradientes_son_los_mismos_bit_a_bit(
    mode: Checkpointing, dropout: float, dtype: torch.dtype | None, sdpa: str
) -> None:
    loss, expected = _gradients(_model("none", sdpa, dropout=dropout), dtype)
    found_loss, found = _gradients(_model(mode, sdpa, dropout=dropout), dtype)
    assert torch.equal(found_loss, loss)
    for name, gradient in found.items():
        assert torch.equal(gradient, expected[name]), name


def test_el_dropout_recalculado_no_gasta_azar_de_mas() -> None:
    states = []
    for mode in MODES:
        _gradients(_model(mode, dropout=0.3))
        states.append(torch.get_rng_state())
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


def test_varios_pasos_de_entrenamiento_son_los_mismos() -> None:
    outcomes = []
    for mode in MODES:
        changes = {"hardware.activation_checkpointing": mode, "model.dropout": 0.1}
        config = make_config(changes)
        training = build_training(config, open_device(config.hardware))
        stream = PeriodicStream(config)
        results = [train_step(training, stream.batch(step), step) for step in range(3)]
        outcomes.append((results, dict(training.model.named_parameters())))
    (results, weights), *others = outcomes
    for found, parameters in others:
        assert found == results
        assert all(torch.equal(value, weights[name]) for name, value in parameters.items())


@pytest.mark.parametrize("mode", ["mlp", "block"])
def test_solo_se_recalcula_al_entrenar_con_gradiente(mode: Checkpointing) -> None:
    model, ids = _model(mode), random_ids(rows=1, length=8)
    calls = {"gate": 0}

    def count(*_: Any) -> None:
        calls["gate"] += 1

    layers: Any = model.blocks
    for block in layers:
        block.mlp.w_gate.register_forward_hook(count)

    def forwards(differentiate: bool) -> int:
        calls["gate"] = 0
        with torch.set_grad_enabled(differentiate):
            logits = model(ids)[0]
        if differentiate:
            logits.sum().backward()
        return calls["gate"] // len(layers)

    assert forwards(differentiate=True) == 2
    assert forwards(differentiate=False) == 1
    model.eval()
    assert forwards(differentiate=True) == 1
    assert model.generate(ids, 2).shape == (1, 10)


def test_los_nombres_de_los_pesos_no_cambian() -> None:
    names = [list(_model(mode).state_dict()) for mode in MODES]
    assert names[0] == names[1] == names[2]


# Memoria


class _LiveBytes(TorchDispatchMode):
    """Bytes de los tensores creados bajo él que siguen vivos, y su máximo."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        if storage in self._seen:
            return
        self._seen.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.live -= size


def _memory(mode: Checkpointing, **changes: Any) -> list[int]:
    """Bytes vivos al acabar la pasada hacia delante, y el pico de la pasada hacia atrás."""
    model = _model(mode, **changes)
    ids = random_ids(rows=4, length=model.config.seq_len, vocab=model.config.vocab_size)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with _LiveBytes() as tracker:
        _, loss = model(ids, ids)
        forward = tracker.peak = tracker.live
        loss.backward()
    return [forward, tracker.peak]


def test_la_memoria_baja_lo_que_dice_la_formula() -> None:
    size: dict[str, Any] = {"n_layer": 6, "d_model": 64, "seq_len": 64, "vocab_size": 64}
    measured = {mode: _memory(mode, **size) for mode in MODES}
    config = _model("none", **size).config
    rows = 4 * config.seq_len
    for heavy, light in pairwise(MODES):
        kept = [
            rows * config.n_layer * cost.layer_activation_bytes(config, "fp32", False, mode)
            for mode in (heavy, light)
        ]
        assert measured[heavy][0] - measured[light][0] == kept[0] - kept[1] > 0
        whole = [
            cost.activation_bytes(config, 4, "fp32", expand_kv=False, checkpointing=mode)
            for mode in (heavy, light)
        ]
        # En el pico hay además tensores de paso, distintos en cada modo.
        saved_at_peak = measured[heavy][1] - measured[light][1]
        assert saved_at_peak > 0
        assert abs(saved_at_peak - (whole[0] - whole[1])) < 0.15 * measured[heavy][1]


def test_las_cifras_de_tiny_50m() -> None:
    # Medidas con tensores simulados en fp16 con K y V expandidos: 11,8 y 2,2 KB por token y capa.
    kept = {mode: cost.layer_activation_bytes(TINY_50M, "fp16", True, mode) for mode in MODES}
    assert 11_500 < kept["mlp"] < 12_100
    assert 2_000 < kept["block"] < 2_200
    live = cost.recomputed_bytes(TINY_50M, "fp16", True, "block")
    assert live + kept["block"] == kept["none"]
    assert kept["mlp"] + cost.recomputed_bytes(TINY_50M, "fp16", True, "mlp") == kept["none"]
    assert cost.recomputed_bytes(TINY_50M, "fp16", True, "none") == 0


# FLOP


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("mode", MODES)
def test_los_flop_de_mas_contra_el_contador_de_torch(mode: Checkpointing, dropout: float) -> None:
    """Con `math` el contador ve la atención entera; la fórmula cuenta la mitad causal."""

    def counted(checkpointing: Checkpointing) -> int:
        model = _model(checkpointing, "math", dropout=dropout)
        ids = torch.zeros(2, model.config.seq_len, dtype=torch.int64)
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(ids, ids)[1].backward()
        return int(counter.get_total_flops()) // ids.numel()

    config = _model("none", dropout=dropout).config
    causal_half = 2 * config.n_layer * config.seq_len * config.d_model if mode == "block" else 0
    expected = cost.recompute_flops_per_token(config, mode)
    assert counted(mode) - counted("none") == expected + causal_half
    assert (expected == 0) == (mode == "none")


# torch.compile


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Que lo compilado en otra prueba no decida qué dimensiones son símbolos en esta."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_compilar_no_cambia_los_pasos_ni_los_nombres(
    mode: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sin generar código, que tarda un minuto: el trazado y la autodiferenciación son los de verdad.
    compile_module = torch.nn.Module.compile
    compiled: list[Block] = []

    def traced(module: Block) -> None:
        compiled.append(module)
        compile_module(module, backend="aot_eager", fullgraph=True)

    monkeypatch.setattr(Block, "compile", traced)
    outcomes = []
    for compiles in (False, True):
        config = make_config(
            {"hardware.compile": compiles, "hardware.activation_checkpointing": mode}
        )
        training = build_training(config, open_device(config.hardware))
        assert len(compiled) == (config.model.n_layer if compiles else 0)
        stream = PeriodicStream(config)
        results = [train_step(training, stream.batch(step), step) for step in range(2)]
        weights = {n: p.detach().clone() for n, p in training.model.state_dict().items()}
        # Otras longitudes y otro modo: la validación acaba en un lote más corto.
        training.model.eval()
        with torch.no_grad():
            shapes = ((2, 9), (1, 1))
            figures = [training.model(random_ids(*s), random_ids(*s))[1].item() for s in shapes]
        outcomes.append((results, weights, figures))
    (results, weights, figures), (found, compiled_weights, compiled_figures) = outcomes
    assert compiled_figures == pytest.approx(figures, rel=1e-5)
    assert list(weights) == list(compiled_weights)
    for plain, fast in zip(results, found, strict=True):
        assert fast.loss == pytest.approx(plain.loss, rel=1e-5)
        assert fast.grad_norm == pytest.approx(plain.grad_norm, rel=1e-4)
    torch.testing.assert_close(compiled_weights, weights, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_el_codigo_generado_da_los_mismos_pasos() -> None:
    losses = []
    for compiles in (False, True):
        config = make_config({"hardware.compile": compiles})
        training = build_training(config, open_device(config.hardware))
        stream = PeriodicStream(config)
        losses.append([train_step(training, stream.batch(step), step).loss for step in range(3)])
        training.model.eval()
        with torch.no_grad():
            loss = training.model(stream.batch(0).ids, stream.batch(0).targets)[1]
        losses[-1].append(loss.item())
        assert training.model.generate(torch.zeros(1, 3, dtype=torch.int64), 2).shape == (1, 5)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
