"""La estimación de un entrenamiento con Muon: su estado, sus productos y en qué precisión van."""

from typing import Any

import pytest
from rich.console import Console

from enlace.cards import profile_card
from enlace.config.schema import Config
from enlace.model.cost import newton_schulz_flops, optimizer_bytes
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.recorder import OPTIMIZER, Trace
from enlace.preflight.estimate.show import show_estimate
from enlace.preflight.estimate.trace import trace_training
from tests.support import make_config

pytestmark = pytest.mark.slow

MUON: dict[str, Any] = {
    "train.optimizer": "muon",
    "hardware.name": "rtx2060",
    "hardware.device": "cuda",
    "hardware.dtype": "fp16",
    "hardware.sdpa_backend": "mem_efficient",
    "train.tokens_per_step": 64,
}


def products(trace: Trace) -> dict[str, int]:
    """FLOP del optimizador, por tipo de producto."""
    flops: dict[str, int] = {}
    for cost, count in trace.work[1, OPTIMIZER].items():
        if cost.flops:
            flops[cost.kind] = flops.get(cost.kind, 0) + count * cost.flops
    return flops


@pytest.mark.parametrize(("dtype", "kind"), [("fp16", "gemm_fp32"), ("bf16", "gemm")])
def test_los_productos_y_el_estado_son_los_de_cost_y_van_en_su_precision(
    dtype: str, kind: str
) -> None:
    config: Config = make_config({**MUON, "hardware.dtype": dtype})
    trace = trace_training(config)
    expected = newton_schulz_flops(config.model, config.train.muon_steps)
    assert products(trace) == {kind: expected}
    counts = 4 * (1 + 4 * config.model.n_layer + 1)  # AdamW: tabla, normas y norma final
    state = sum(size for _, size in trace.state)
    assert state == optimizer_bytes(config.model, "muon") + counts


def test_la_tabla_dice_lo_que_cuesta_muon_y_el_disco_cuenta_menos() -> None:
    card = profile_card("rtx2060")
    plain, muon = (
        estimate(make_config({**MUON, "train.optimizer": kind}), card, 1 << 40, advise=False)
        for kind in ("adamw", "muon")
    )
    texts = []
    for guess in (plain, muon):
        console = Console(record=True, width=100, force_terminal=False)
        with console.capture() as capture:
            show_estimate(guess, console)
        texts.append(capture.get())
    assert ["Muon" in text for text in texts] == [False, True]
    assert plain.time is not None
    assert muon.time is not None
    assert 0 < plain.time.optimizer_share < muon.time.optimizer_share < 1
    assert plain.time.tokens_per_second > muon.time.tokens_per_second
    assert plain.newton_schulz_flops == 0
    assert muon.disk.checkpoint_bytes < plain.disk.checkpoint_bytes
