"""La z robusta contra una referencia independiente, y cuándo un paso es un pico."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace.errors import CheckpointError, TrainingAbortedError
from enlace.train.numerics import check_spikes, count_step
from enlace.train.spikes import Scores, SpikeWatch, robust_z
from enlace.train.state import Counters
from tests.support import make_config

finite = st.floats(-1e6, 1e6)


@given(finite, st.lists(finite, min_size=1, max_size=9), st.floats(1e-3, 10))
def test_la_z_es_la_de_la_formula(value: float, window: list[float], floor: float) -> None:
    center = np.median(window)
    deviation = 1.4826 * np.median(np.abs(np.array(window) - center))
    expected = (value - center) / max(float(deviation), floor)
    assert robust_z(value, window, floor) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_la_desviacion_estima_la_de_una_normal() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, 20_001).tolist()
    assert robust_z(7.0, values, 1e-9) == pytest.approx(1.0, abs=0.05)


def watch(losses: list[float], **changes: Any) -> list[Scores | None]:
    """Lo que dice de cada pérdida, con la norma a 1."""
    train = make_config({f"train.{key}": value for key, value in changes.items()}).train
    watcher = SpikeWatch(train)
    return [watcher.observe(loss, 1.0) for loss in losses]


def test_solo_hay_picos_con_la_ventana_llena_y_hacia_arriba() -> None:
    flat = [3.0, 3.1] * 4
    assert watch([9.0, *flat[1:]])[0] is None
    assert watch([*flat, 9.0])[-1] is not None
    assert watch([*flat, 0.1])[-1] is None
    assert watch([*flat, 9.0], spike_window=0, max_spikes=0)[-1] is None


def test_la_desviacion_minima_calla_lo_insignificante() -> None:
    flat = [3.0] * 8
    assert watch([*flat, 3.3], spike_threshold=10.0, spike_min_deviation=0.02)[-1] is not None
    assert watch([*flat, 3.3], spike_threshold=10.0, spike_min_deviation=0.05)[-1] is None


def test_una_subida_que_se_queda_acaba_siendo_lo_normal() -> None:
    said = watch([*[3.0] * 8, *[9.0] * 8])
    assert [scores is not None for scores in said[8:]] == [True] * 4 + [False] * 4


def test_la_norma_tambien_cuenta() -> None:
    watcher = SpikeWatch(make_config().train)
    for _ in range(8):
        assert watcher.observe(3.0, 0.5) is None
    scores = watcher.observe(3.0, 0.5 * math.exp(1.0))
    assert scores is not None
    assert scores.loss == 0.0
    assert scores.grad_norm == pytest.approx(1.0 / 0.02)


def test_la_ventana_vuelve_entera_o_recortada() -> None:
    watcher = SpikeWatch(make_config().train)
    for loss in range(12):
        watcher.observe(float(loss), 1.0)
    for window in (8, 4):
        other = SpikeWatch(make_config({"train.spike_window": window}).train)
        other.load_state_dict(watcher.state_dict())
        assert other.state_dict()["losses"] == [float(loss) for loss in range(12)][-window:]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"losses": [1.0], "log_norms": []},
        {"losses": ["1"], "log_norms": [1.0]},
        {"losses": [math.nan], "log_norms": [1.0]},
    ],
)
def test_una_ventana_danada_se_rechaza(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="ventana de los picos"):
        SpikeWatch(make_config().train).load_state_dict(state)


def test_una_racha_cuenta_saltos_y_picos_y_acaba_con_un_paso_normal() -> None:
    counters, train = Counters(), make_config({"train.max_spikes": 3}).train
    scores = Scores(30.0, 1.0)
    for step, (skipped, spike) in enumerate([(False, False), (False, True), (True, False)]):
        count_step(counters, step, skipped, spike)
    assert (counters.trouble_since, counters.spikes, counters.skipped) == (1, 1, 1)
    count_step(counters, 3, False, False)
    assert (counters.trouble_since, counters.consecutive_spikes) == (None, 0)
    for step in (4, 5, 6):
        check_spikes(step, counters, scores, train)
        count_step(counters, step, False, True)
    with pytest.raises(TrainingAbortedError, match=r"3 picos seguidos.*desde el paso 4") as caught:
        check_spikes(6, counters, scores, train)
    assert (caught.value.first, caught.value.last) == (4, 6)
    assert counters.spikes == 4
