import math

import pytest

from enlace.preflight.health import (
    FP16_MAX,
    ActivationPeak,
    Health,
    PrecisionGap,
)
from enlace.preflight.health_rules import judge_health, lower_bound
from tests.preflight.support_preflight import health, peaks, scaling, window
from tests.support import make_config

CONFIG = make_config({"train.fp16_init_scale": 2.0**10})
LIMITS = CONFIG.hardware.preflight
"""Ventana de 4 bits, activaciones a 1 bit (aviso a 4), saltos hasta el 1 % (aviso al 0,2 %)."""


def judged(changed: Health) -> tuple[list[str], list[str]]:
    return judge_health(changed, LIMITS, CONFIG.train)


def outcome(changed: Health) -> str:
    reasons, warnings = judged(changed)
    return "rechazo" if reasons else "aviso" if warnings else "bien"


def test_un_modelo_sano_no_tiene_motivos_ni_avisos() -> None:
    assert judged(health()) == ([], [])


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (FP16_MAX / 16, "bien"),
        (FP16_MAX / 16 * 1.01, "aviso"),
        (FP16_MAX / 2, "aviso"),
        (FP16_MAX / 2 * 1.01, "rechazo"),
        (None, "rechazo"),
    ],
)
def test_las_activaciones_se_juzgan_por_sus_bits_hasta_65504(
    largest: float | None, expected: str
) -> None:
    assert outcome(health(activations=peaks(largest))) == expected


def test_el_residuo_va_en_fp32_y_solo_se_avisa() -> None:
    assert outcome(health(activations=peaks(residual=FP16_MAX * 4))) == "aviso"
    assert "residuo" in judged(health(activations=peaks(residual=FP16_MAX)))[1][0]


def test_se_nombra_la_primera_activacion_que_desborda() -> None:
    seen = (
        ActivationPeak(kind="consulta", layer=2, largest=3.0),
        ActivationPeak(kind="producto SwiGLU", layer=2, largest=None),
        ActivationPeak(kind="salida de FFN", layer=2, largest=None),
        ActivationPeak(kind="residuo", layer=2, largest=None),
    )
    assert health(activations=seen).tightest.where == "producto SwiGLU de la capa 2"


def test_los_bits_de_una_activacion() -> None:
    assert ActivationPeak(kind="logits", layer=None, largest=FP16_MAX / 8).bits == 3
    assert ActivationPeak(kind="logits", layer=None, largest=0.0).bits == math.inf
    assert ActivationPeak(kind="logits", layer=None, largest=None).bits is None


@pytest.mark.parametrize(
    ("floor", "top", "bits", "expected"),
    [
        (4, 18, 14, "bien"),
        (6, 10, 4, "bien"),
        (7, 10, 3, "rechazo"),
        (None, 18, 0, "rechazo"),
        (0, None, 0, "rechazo"),
        (4, 24, 20, "bien"),
        (4, 9, 5, "aviso"),
        (11, 18, 7, "aviso"),
    ],
)
def test_la_ventana_de_escalas_va_del_suelo_a_la_mayor_finita(
    floor: int | None, top: int | None, bits: int, expected: str
) -> None:
    # La escala inicial, 2^10, debe caer dentro o se avisa.
    changed = window(floor, top)
    assert changed.bits == bits
    assert outcome(health(window=changed)) == expected


@pytest.mark.parametrize(
    ("difference", "cosine", "expected"),
    [
        (1e-3, 0.999, "bien"),
        (1.01e-3, 0.999, "rechazo"),
        (1e-3, 0.9989, "rechazo"),
    ],
)
def test_fp16_debe_parecerse_a_fp32(difference: float, cosine: float, expected: str) -> None:
    gap = PrecisionGap(loss_difference=difference, gradient_cosine=cosine)
    assert outcome(health(gap=gap)) == expected


def test_no_haber_podido_comparar_se_avisa() -> None:
    assert outcome(health(gap=None)) == "aviso"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "bien"),
        ({"skips": 1}, "aviso"),
        # 5 de 200 podría ser el 0,99 %; 6, no baja del 1,3 %.
        ({"skips": 5}, "aviso"),
        ({"skips": 6}, "rechazo"),
        # Lo que cuesta crecer cada 1000 pasos no pasa del 0,1 %; cada 50, sería el 2 %.
        ({"growth_skips": 10}, "bien"),
        ({"growth_skips": 10, "growth_interval": 50}, "rechazo"),
        ({"growth_skips": 5, "growth_interval": 200}, "aviso"),
        # Sin ningún crecimiento observado no hay prueba para rechazar, pero se avisa.
        ({"growths": 0, "growth_interval": 50}, "aviso"),
        ({"steps": 0}, "rechazo"),
        ({"scales": (2048.0, 1024.0)}, "bien"),
        ({"scales": (2048.0, 512.0)}, "aviso"),
    ],
)
def test_los_saltos_se_juzgan_por_lo_que_demuestran(
    changes: dict[str, object], expected: str
) -> None:
    assert outcome(health(scaling=scaling(**changes))) == expected


def test_cero_saltos_solo_demuestran_una_cota() -> None:
    assert scaling(steps=100).bound == 3 / 100
    assert scaling(steps=2).bound == 1.0
    assert scaling(steps=0).bound is None
    assert scaling(skips=1).bound is None


@pytest.mark.parametrize(("failures", "trials"), [(1, 20), (2, 200), (5, 200), (20, 20)])
def test_la_cota_inferior_es_la_tasa_con_la_que_verlo_tendria_un_5_por_ciento(
    failures: int, trials: int
) -> None:
    rate = lower_bound(failures, trials)
    at_least = sum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(failures, trials + 1)
    )
    assert at_least == pytest.approx(0.05, rel=1e-6)


def test_sin_fallos_la_cota_inferior_es_cero() -> None:
    assert lower_bound(0, 10) == 0.0


def test_se_dicen_todos_los_motivos_de_salud_a_la_vez() -> None:
    bad = health(activations=peaks(FP16_MAX), window=window(17, 18), scaling=scaling(steps=0))
    assert len(judged(bad)[0]) == 3


@pytest.mark.parametrize("largest", [None, 64.0])
def test_si_nada_es_finito_solo_se_dice_la_causa(largest: float | None) -> None:
    """Tocar las escalas de la pérdida no arregla un modelo que desborda."""
    bad = health(
        activations=peaks(largest), window=window(0, None), gap=None, scaling=scaling(steps=0)
    )
    reasons, warnings = judged(bad)
    assert (len(reasons), warnings) == (1, [])
    assert ("desborda" in reasons[0]) is (largest is None)
    assert reasons[0].endswith("baja model.init_std o usa bf16 si la tarjeta lo tiene")


@pytest.mark.parametrize(
    ("start", "lowest", "floor", "remedy"),
    [
        (2.0**10, 1.0, 4, None),
        (2.0**19, 1.0, 4, "train.fp16_init_scale=524288 pasa de la mayor"),
        (2.0**20, 2.0**19, 4, "train.fp16_min_scale=524288 no deja bajar hasta ella"),
        (2.0**3, 1.0, 4, "train.fp16_init_scale=8 hunde gradientes: ponla en 2048"),
    ],
)
@pytest.mark.parametrize("found", [True, False])
def test_si_la_escala_no_empieza_bien_se_dice_cual_poner(
    start: float, lowest: float, floor: int, remedy: str | None, found: bool
) -> None:
    changes = {"fp16_init_scale": start, "fp16_min_scale": lowest}
    train = CONFIG.train.model_copy(update=changes)
    seen = health(window=window(floor, 18), scaling=scaling(steps=200 if found else 0))
    reasons, warnings = judge_health(seen, LIMITS, train)
    told = warnings if found else reasons
    assert len(reasons + warnings) == (remedy is not None or not found)
    if remedy is not None:
        assert remedy in told[0]
    elif not found:
        assert "sube hardware.preflight.health_steps=4" in told[0]
