from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.model.cost import (
    activation_bytes,
    flops_per_token,
    layer_activation_bytes,
    parameter_count,
)
from enlace.preflight.estimate.affine import extrapolate, resized
from enlace.preflight.estimate.capacity import estimate_memory
from enlace.preflight.estimate.costs import Cost
from enlace.preflight.estimate.memory import replay, replay_on_heap, resumed
from enlace.preflight.estimate.recorder import BACKWARD, DATA, FORWARD, OPTIMIZER, Trace
from enlace.preflight.estimate.roofline import LAUNCH_SECONDS, Rates
from enlace.preflight.estimate.trace import trace_training
from enlace.preflight.synthetic import SyntheticStream
from enlace.progress import TrainLog
from enlace.train.resume import open_run, reserve_saves
from enlace.train.trainer import build_training
from tests.support import make_config

GPU = {
    "hardware.device": "cuda",
    "hardware.dtype": "fp16",
    "hardware.sdpa_backend": "mem_efficient",
}


def traced(changes: dict[str, Any] | None = None) -> Trace:
    return trace_training(make_config(changes))


def flops(trace: Trace, kind: str, step: int = 1) -> int:
    total = 0
    for phase in (FORWARD, BACKWARD):
        total += sum(n * c.flops for c, n in trace.work[step, phase].items() if c.kind == kind)
    return total


@pytest.fixture(scope="module")
def gpu() -> Trace:
    return traced(GPU)


def test_lo_vivo_al_construir_son_los_parametros_y_las_tablas_de_rope(gpu: Trace) -> None:
    built = sum(event.size for event in gpu.events if event.phase == "build")
    assert built == 4 * parameter_count(make_config().model) + 2 * 4 * 32 * 8


def test_el_estado_del_optimizador_son_dos_momentos_y_una_cuenta(gpu: Trace) -> None:
    state = sum(size for _, size in gpu.state)
    parameters = 1 + 2 * 11 + 1  # tabla compartida, once por bloque y la norma final
    assert state == 8 * parameter_count(make_config().model) + 4 * parameters


def test_los_flop_son_los_de_cost(gpu: Trace) -> None:
    config = make_config(GPU)
    tokens = 2 * config.hardware.micro_batch * config.model.seq_len
    head = 2 * config.model.vocab_size * config.model.d_model
    attention = 6 * config.model.n_layer * config.model.seq_len * config.model.d_model
    matrices = flops_per_token(config.model) - attention
    # En 16 bits la pérdida recalcula sus logits: un producto más.
    assert flops(gpu, "gemm") == tokens * (matrices + head)
    # Y la atención hacia atrás, los suyos: 3,5 partes donde lo útil son 3.
    assert flops(gpu, "attention") == tokens * attention * 3.5 / 3


@pytest.mark.parametrize("kernel", ["mem_efficient", pytest.param("flash", marks=pytest.mark.slow)])
def test_una_capa_guarda_los_bytes_que_dice_cost(kernel: str) -> None:
    changes = {**GPU, "hardware.sdpa_backend": kernel, "model.seq_len": 128}
    changes |= {"train.tokens_per_step": 1024}
    config = make_config(changes)
    two, three = (forward_bytes(trace_training(resized(config, layers, 2, 2))) for layers in (2, 3))
    expected = 256 * layer_activation_bytes(config.model, "fp16", kernel == "mem_efficient")
    # Además, las copias de 16 bits de las matrices de la capa.
    per_layer = (three - two) - 2 * layer_matrices(config)
    assert per_layer == pytest.approx(expected, rel=0.02)


def layer_matrices(config: Config) -> int:
    two, three = (
        parameter_count(config.model.model_copy(update={"n_layer": layers})) for layers in (2, 3)
    )
    norms = 2 * config.model.d_model + 2 * config.model.head_dim
    return three - two - norms


def forward_bytes(trace: Trace) -> int:
    """Los datos de tensores vivos al acabar la primera pasada hacia delante."""
    alive: Counter[int] = Counter()
    for event in trace.events:
        if event.phase == BACKWARD:
            break
        if event.phase == FORWARD and event.kind == DATA:
            alive[event.name] = event.size
    return sum(alive.values())


@pytest.mark.slow
def test_extrapolar_da_lo_mismo_que_trazar_seis_capas() -> None:
    config = make_config({**GPU, "train.tokens_per_step": 64 * 32})
    model = extrapolate(config)
    for rows in (4, 16):
        full = replay(trace_training(resized(config, 6, rows, 2)).events).live
        predicted = model.live(6, rows)
        for phase in (FORWARD, BACKWARD, OPTIMIZER):
            assert predicted[phase] == full[phase], (rows, phase)


@pytest.mark.slow
def test_guardar_menos_pide_menos() -> None:
    peaks = [
        replay(traced({**GPU, "model.seq_len": 128, "train.tokens_per_step": 1024,
                       "model.n_layer": 4, "hardware.activation_checkpointing": mode}).events)
        for mode in ("none", "mlp", "block")
    ]  # fmt: skip
    live = [peak.live[BACKWARD] for peak in peaks]
    assert live == sorted(live, reverse=True)
    assert live[2] < 0.7 * live[0]


def test_reanudar_carga_el_estado_antes_y_acaba_con_lo_mismo(gpu: Trace) -> None:
    fresh, later = replay(gpu.events), replay(resumed(gpu))
    assert later.live["load"] > later.live["build"]
    assert later.live[BACKWARD] == pytest.approx(fresh.live[BACKWARD], rel=0.02)


def test_nada_queda_vivo_de_un_paso_salvo_el_estado(gpu: Trace) -> None:
    alive = {event.name: event.size for event in gpu.events if event.step <= 1}
    kept = sum(alive.values())
    state = sum(size for _, size in gpu.state)
    built = sum(event.size for event in gpu.events if event.phase == "build")
    assert kept == pytest.approx(built + state, abs=64)


def test_en_una_gpu_los_objetos_no_cuentan(gpu: Trace) -> None:
    assert {event.kind for event in gpu.events} == {DATA}


def test_en_cpu_no_se_redondea_ni_se_cambia_nada() -> None:
    peaks = replay_on_heap(traced().events)
    assert peaks.peak_reserved >= peaks.peak_live


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_en_cpu_se_cuenta_la_copia_de_la_que_se_escriben_los_checkpoints(
    optimizer: str, tmp_path: Path
) -> None:
    config = make_config({"train.optimizer": optimizer, "model.n_layer": 1})
    memory, trace = estimate_memory(config, None)
    assert trace is not None
    copy = memory.live_bytes - replay_on_heap(trace.events).peak_live
    training = build_training(config, open_device(config.hardware))
    log = TrainLog(tmp_path, steps=1, tokens_per_step=1, console=Console(quiet=True))
    run = open_run(training, SyntheticStream(config), tmp_path, log, {})
    # Además hay cabeceras, cuentas de pasos y el estado del azar: unos KiB.
    assert copy == pytest.approx(reserve_saves(training, run), abs=32 << 10)


def test_lo_que_se_guarda_no_pasa_de_lo_que_dice_cost(gpu: Trace) -> None:
    config = make_config(GPU)
    peak = replay(gpu.events).live[FORWARD]
    assert peak > activation_bytes(config.model, 2, "fp16", expand_kv=True)


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [
        (Cost("gemm", 10**12, 1), 1e12 / (0.7 * 1e13)),
        (Cost("gemm_fp32", 10**12, 1), 1e12 / (0.7 * 1e12)),
        (Cost("attention", 10**12, 1), 1e12 / (0.45 * 1e13)),
        (Cost("pointwise", 0, 10**9), 1e9 / (0.8 * 1e11)),
        (Cost("pointwise", 0, 1), LAUNCH_SECONDS),
    ],
)
def test_un_nucleo_tarda_lo_que_mas_le_cueste(cost: Cost, seconds: float) -> None:
    assert Rates(1e13, 1e12, 1e11).seconds(cost) == pytest.approx(seconds, rel=1e-12)
