from dataclasses import replace

import pytest
import torch

from enlace.backends import Backend, open_device
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.model.layers import Block
from enlace.preflight.health import Health
from enlace.preflight.health_rules import judge_health
from enlace.preflight.probes import (
    SMALLEST_NORMAL,
    best_exponent,
    full_precision,
    lost_fractions,
    parameter_group,
    precision_gap,
    probe_health,
    sweep_scales,
)
from enlace.preflight.probes_activations import activation_peaks
from enlace.preflight.probes_scaling import probe_scaling, read_trajectory, scaling_config
from enlace.preflight.synthetic import SyntheticStream, synthetic_batch
from enlace.train.state import Training
from enlace.train.trainer import build_training, train_step
from tests.preflight.support_preflight import window
from tests.support import make_config

FP16 = {
    "hardware.dtype": "fp16",
    "hardware.preflight.health_steps": 20,
    "model.n_layer": 1,
    "train.tokens_per_step": 128,
}
"""fp16 en CPU es lento: lo mínimo que aún acumula."""


def fp16(**changes: object) -> tuple[Config, Backend]:
    config = make_config({**FP16, **changes})
    return config, open_device(config.hardware)


@pytest.fixture(scope="module")
def healthy() -> Health:
    return probe_health(*fp16())


def test_un_modelo_normal_es_sano(healthy: Health) -> None:
    config, _ = fp16()
    assert judge_health(healthy, config.hardware.preflight, config.train)[0] == []
    assert healthy.window.bits >= 10
    assert healthy.gap is not None
    assert healthy.gap.loss_difference < 1e-4
    assert 0.9999 < healthy.gap.gradient_cosine <= 1


def test_un_modelo_cuyas_activaciones_desbordan_es_enfermo_y_se_dice_donde() -> None:
    config, backend = fp16(**{"model.init_std": 100.0})
    ill = probe_health(config, backend)
    reasons, _ = judge_health(ill, config.hardware.preflight, config.train)
    # v ≈ 100·√32 y al multiplicar por wo otro tanto: unos 320 000, lo primero que pasa de 65504.
    assert ill.tightest.where == "salida de atención de la capa 0"
    assert "desborda en salida de atención de la capa 0" in reasons[0]
    first = [peak.largest for peak in ill.activations].index(None)
    assert ill.activations[first] == ill.tightest
    assert ill.window.top is None
    assert ill.gap is None
    assert ill.scaling.steps == 0


def test_las_sondas_no_cambian_los_pesos() -> None:
    config, backend = fp16()
    training = build_training(config, backend)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    batch = synthetic_batch(config, 2, 0)
    activation_peaks(training, batch)
    sweep_scales(training, batch, config.train.tokens_per_step)
    for name, tensor in training.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in training.model.parameters())
    assert not any(module._forward_hooks for module in training.model.modules())


def test_el_barrido_encuentra_la_escala_que_desborda_y_la_siguiente_no(healthy: Health) -> None:
    config, backend = fp16()
    found = healthy.window
    assert found.top is not None
    assert found.ceiling == found.top + 1
    for exponent, finite in ((found.top, True), (found.ceiling, False)):
        training = _stepped_with_scale(config, backend, exponent)
        assert (training.counters.skipped == 0) is finite


def _stepped_with_scale(config: Config, backend: Backend, exponent: int) -> Training:
    """Un `train_step` sobre el micro-batch del barrido: su divisor es menor y su escala también."""
    batch = synthetic_batch(config, config.hardware.micro_batch, 0)
    scale = 2.0**exponent * batch.targets.numel() / config.train.tokens_per_step
    train = config.train.model_copy(update={"fp16_init_scale": scale})
    training = build_training(config.model_copy(update={"train": train}), backend)
    train_step(training, batch, 0)
    return training


def test_una_fraccion_hundida_es_la_de_los_que_no_eran_cero() -> None:
    tiny = SMALLEST_NORMAL
    gradients = {
        "blocks.0.attn.wq.weight": torch.tensor([0.0, 0.0, tiny / 2, tiny, 1.0]),
        "blocks.0.mlp.w_up.weight": torch.tensor([-tiny / 4, -1.0]),
        "tok_emb.weight": torch.tensor([0.0, 0.0]),
    }
    reference = {
        "blocks.0.attn.wq.weight": torch.tensor([False, True, True, True, True]),
        "blocks.0.mlp.w_up.weight": torch.tensor([True, True]),
        "tok_emb.weight": torch.tensor([False, False]),
    }
    assert lost_fractions(gradients, reference) == {"atención": 2 / 4, "FFN": 1 / 2}


def test_cada_parametro_tiene_su_grupo() -> None:
    config, backend = fp16()
    names = [name for name, _ in build_training(config, backend).model.named_parameters()]
    groups = {name: parameter_group(name) for name in names}
    assert groups["tok_emb.weight"] == "embeddings"
    assert groups["blocks.0.attn.wo.weight"] == "atención"
    assert groups["blocks.0.attn.q_norm.weight"] == "normas"
    assert groups["blocks.0.mlp.w_down.weight"] == "FFN"
    assert set(groups.values()) == {"embeddings", "atención", "normas", "FFN"}


@pytest.mark.parametrize(
    ("floor", "top", "expected"), [(4, 18, 11), (None, 18, 18), (0, None, None)]
)
def test_se_compara_en_el_centro_de_la_ventana(
    floor: int | None, top: int | None, expected: int | None
) -> None:
    assert best_exponent(window(floor, top)) == expected


def test_las_activaciones_son_las_que_se_calculan_a_mano() -> None:
    # En fp32 y con lm_head propio no hay redondeo que comparar con tolerancia.
    config = make_config({"model.tie_embeddings": False})
    backend = open_device(config.hardware)
    training = build_training(config, backend)
    batch = synthetic_batch(config, 2, 0)
    seen = {(peak.kind, peak.layer): peak.largest for peak in activation_peaks(training, batch)}
    model = training.model
    with torch.no_grad():
        block = model.blocks[0]
        assert isinstance(block, Block)
        assert block.attn.q_norm is not None
        normed = block.attn_norm(model.tok_emb(batch.ids))
        query = block.attn.q_norm(block.attn.wq(normed).unflatten(-1, (-1, 8)))
        logits, _ = model(batch.ids)
        hidden = model.hidden_states(batch.ids)
    assert logits is not None
    assert seen["norma de atención", 0] == normed.abs().max().item()
    assert seen["consulta", 0] == query.abs().max().item()
    assert seen["norma final", None] == hidden.abs().max().item()
    assert seen["logits", None] == pytest.approx(logits.abs().max().item(), rel=1e-5)
    assert len(seen) == 9 * config.model.n_layer + 2


def test_sin_qk_norm_se_miran_las_proyecciones() -> None:
    config = make_config({"model.qk_norm": False})
    training = build_training(config, open_device(config.hardware))
    peaks = activation_peaks(training, synthetic_batch(config, 2, 0))
    assert sum(peak.kind in ("consulta", "clave") for peak in peaks) == 2 * config.model.n_layer


def test_la_diferencia_de_precision_es_relativa_y_el_coseno_es_de_todo_el_gradiente() -> None:
    half = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([0.0])}
    full = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([4.0])}
    gap = precision_gap((2.2, 2.0), half, full)
    assert gap is not None
    assert gap.loss_difference == pytest.approx(0.1)
    assert gap.gradient_cosine == pytest.approx(0.6)
    assert precision_gap((float("nan"), 2.0), half, full) is None
    assert precision_gap((2.0, 2.0), {**half, "b": torch.tensor([torch.inf])}, full) is None


@pytest.mark.parametrize(
    ("device", "kernel", "expected", "expands"),
    [
        ("cuda", "flash", "mem_efficient", True),
        ("cuda", "mem_efficient", "mem_efficient", True),
        ("cpu", "flash", "flash", False),
    ],
)
def test_en_fp32_se_cambia_el_nucleo_que_solo_sabe_16_bits(
    device: str, kernel: str, expected: str, expands: bool
) -> None:
    _, backend = fp16()
    asked = replace(backend, device=torch.device(device), sdpa_backend=kernel)
    full = full_precision(asked)
    assert (full.dtype, full.sdpa_backend, full.expand_kv) == (torch.float32, expected, expands)


def test_los_pasos_de_salud_son_los_del_entrenador_con_la_escala_trasladada() -> None:
    config, backend = fp16(**{"train.fp16_init_scale": 2.0**19})
    probed = probe_scaling(config, backend)
    short = scaling_config(config)
    assert short.accumulation == 1
    assert short.train.fp16_init_scale == 2.0**19 / config.accumulation
    training, stream = build_training(short, backend), SyntheticStream(short)
    results = [train_step(training, stream.batch(step), step) for step in range(20)]
    assert probed.scales == tuple(result.scale * config.accumulation for result in results)
    assert probed.calibration_skips + probed.skips + probed.growth_skips == sum(
        result.skipped for result in results
    )
    # Con un intervalo de 2 la escala crece hasta topar, y no sigue subiendo.
    assert probed.growths > 0
    assert probed.growth_skips > 0
    assert max(probed.scales) < 2.0**24


def test_una_escala_imposible_acaba_la_sonda_sin_pasos_calibrados() -> None:
    config, backend = fp16(**{"train.fp16_init_scale": 2.0**60, "train.fp16_max_skips": 3})
    probed = probe_scaling(config, backend)
    assert (probed.steps, probed.calibration_skips) == (0, 3)


def trajectory(marks: str, interval: int = 2) -> tuple[int, int, int, int, int]:
    """Simula un GradScaler (×2 y ÷2) con los saltos dados («x») y lee la trayectoria."""
    scales, good, scale = [], 0, 1024.0
    for mark in marks:
        if mark == "x":
            scale, good = scale / 2, 0
        else:
            good += 1
            if good == interval:
                scale, good = scale * 2, 0
        scales.append(scale)
    config = make_config(FP16)
    read = read_trajectory(scales, [mark == "x" for mark in marks], 1024.0, interval, config)
    return read.calibration_skips, read.steps, read.skips, read.growths, read.growth_skips


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        # La calibración acaba al segundo paso bueno seguido, con el que la escala ya creció.
        ("xx..", (2, 0, 0, 0, 0)),
        ("xx.x..", (3, 0, 0, 0, 0)),
        ("....", (0, 2, 0, 2, 0)),
        # Un salto justo después de crecer es el precio de crecer.
        ("..x..x", (0, 4, 0, 2, 2)),
        # Un segundo salto, ya con la escala bajada, es de verdad.
        ("..xx..", (0, 4, 1, 2, 1)),
        ("xxx", (3, 0, 0, 0, 0)),
    ],
)
def test_la_trayectoria_separa_calibrar_crecer_y_saltar(
    marks: str, expected: tuple[int, int, int, int, int]
) -> None:
    assert trajectory(marks) == expected


def test_el_intervalo_corto_no_pasa_del_de_verdad() -> None:
    assert scaling_config(make_config(FP16)).train.fp16_growth_interval == 2
    long = make_config({"hardware.preflight.health_steps": 200, "train.fp16_growth_interval": 1000})
    assert scaling_config(long).train.fp16_growth_interval == 20
    short = make_config({"hardware.preflight.health_steps": 200, "train.fp16_growth_interval": 5})
    assert scaling_config(short).train.fp16_growth_interval == 5


def test_el_mismo_lote_en_dos_divisores_da_gradientes_proporcionales() -> None:
    # Es lo que permite trasladar la escala de un micro-batch a la del paso entero.
    config = make_config()
    training = build_training(config, open_device(config.hardware))
    batch = synthetic_batch(config, 2, 0)
    wide = sweep_scales(training, Batch(batch.ids, batch.targets), batch.targets.numel())
    narrow = sweep_scales(training, batch, 4 * batch.targets.numel())
    for exponent in range(20):
        assert wide.points[exponent].lost == narrow.points[exponent + 2].lost
