"""La tasa de aprendizaje: tablas hechas a mano y propiedades."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enlace.config.schema import TrainConfig
from enlace.train.schedule import decay_start, learning_rate
from tests.support import make_config


def recipe(**changes: Any) -> TrainConfig:
    return make_config({f"train.{key}": value for key, value in changes.items()}).train


def curve(train: TrainConfig) -> list[float]:
    return [learning_rate(step, train) for step in range(train.steps)]


def test_wsd_lineal_a_mano() -> None:
    train = recipe(lr=1.0, steps=8, warmup=2, decay=4, final_lr_fraction=0.2)
    assert curve(train) == pytest.approx([0.5, 1, 1, 1, 1, 0.8, 0.6, 0.4])
    assert learning_rate(8, train) == pytest.approx(0.2)
    assert decay_start(train) == 4


def test_wsd_uno_menos_raiz_a_mano() -> None:
    train = recipe(lr=2.0, steps=6, warmup=1, decay=4, decay_shape="sqrt")
    expected = [2, 2, 2, 2 * (1 - math.sqrt(1 / 4)), 2 * (1 - math.sqrt(2 / 4))]
    assert curve(train)[:5] == pytest.approx(expected)
    assert learning_rate(6, train) == 0.0


def test_coseno_a_mano() -> None:
    train = recipe(lr=1.0, steps=6, warmup=2, schedule="cosine", final_lr_fraction=0.1)
    half = 0.1 + 0.9 * 0.5
    quarter = 0.1 + 0.9 * 0.5 * (1 + math.sqrt(0.5))
    assert curve(train)[:5] == pytest.approx([0.5, 1, 1, quarter, half])


def test_sin_calentamiento_ni_decaimiento_es_constante() -> None:
    assert curve(recipe(lr=0.3, steps=5, warmup=0, decay=0)) == [0.3] * 5


def test_las_fracciones_se_cuentan_en_pasos() -> None:
    assert curve(recipe(steps=20, warmup=0.1, decay=0.2)) == curve(
        recipe(steps=20, warmup=2, decay=4)
    )


@st.composite
def recipes(draw: st.DrawFn) -> TrainConfig:
    steps = draw(st.integers(1, 60))
    warmup = draw(st.integers(0, steps))
    return recipe(
        steps=steps,
        warmup=warmup,
        decay=draw(st.integers(0, steps - warmup)),
        lr=draw(st.floats(1e-5, 1.0)),
        schedule=draw(st.sampled_from(["wsd", "cosine"])),
        decay_shape=draw(st.sampled_from(["linear", "sqrt"])),
        final_lr_fraction=draw(st.floats(0.0, 0.9)),
    )


@settings(max_examples=60, deadline=None)
@given(recipes())
def test_sube_se_mantiene_y_baja_sin_valer_cero(train: TrainConfig) -> None:
    rates = curve(train)
    warmup = train.warmup_steps
    assert all(0 < rate <= train.lr for rate in rates)
    assert all(a < b for a, b in itertools.pairwise(rates[:warmup]))
    assert all(a >= b for a, b in itertools.pairwise(rates[warmup:]))
    if warmup:
        assert rates[warmup - 1] == train.lr
    assert all(rate >= train.lr * train.final_lr_fraction for rate in rates[warmup:])


@settings(max_examples=30, deadline=None)
@given(recipes())
def test_tras_el_ultimo_paso_queda_la_tasa_final(train: TrainConfig) -> None:
    if train.decay_steps:
        final = learning_rate(train.steps, train)
        assert final == pytest.approx(train.lr * train.final_lr_fraction, abs=1e-12)
