"""El informe: su figura, y las cifras que engañarían escritas sin cuidado."""

from io import StringIO

import pytest
from rich.console import Console

from enlace.preflight.health import PrecisionGap
from enlace.preflight.measurement import EnergyUse, Failure, Outcome
from enlace.preflight.picture import picture_svg
from enlace.preflight.report import report_markdown, show_preflight
from enlace.preflight.rows import measurement_rows, memory_deviation
from enlace.preflight.verdict import judge
from tests.preflight.support_preflight import health, made_up, scaling
from tests.support import make_config

CONFIG = make_config()
CRASH = Failure(kind="crashed", detail="SIGABRT")


@pytest.mark.parametrize(
    ("estimated", "fraction", "said"),
    [
        (80 << 20, 0.25, "se midieron 20,0\u00a0MiB más"),
        (80 << 20, -0.25, "se midieron 20,0\u00a0MiB menos"),
        (1 << 10, 7.71, "se midieron 7,7\u00a0KiB más"),
        (80 << 20, 0.0, "se midió lo mismo"),
        (640 << 20, 0.1, "se midió un 10,0\u00a0% más"),
        (640 << 20, 0.0999, "se midieron 63,9\u00a0MiB más"),
    ],
)
def test_de_una_memoria_pequena_no_se_da_un_porcentaje(
    estimated: int, fraction: float, said: str
) -> None:
    assert memory_deviation(estimated, fraction) == said


def test_lo_diminuto_no_se_escribe_como_cero() -> None:
    tiny = scaling(skips=0, growths=10, growth_skips=1, growth_interval=10**6, scales=(0.5,))
    gap = PrecisionGap(loss_difference=1e-9, gradient_cosine=0.99999)
    outcome = made_up(
        parameters=13_184,
        flops_per_token=8_192,
        tokens_per_second=30.0,
        tokens_per_parameter=0.004,
        energy=EnergyUse(source="contador", watts=9.0, total_kwh=3e-6, cost=1e-6),
        health=health(scaling=tiny, gap=gap),
    )
    rows = dict(measurement_rows(CONFIG, outcome))
    assert rows["Parámetros"] == "13,18\u00a0k"
    assert rows["FLOP por token"] == "8,2\u00a0k"
    assert rows["Cálculo útil"] == "245,8\u00a0kFLOP/s"
    assert rows["Tokens por parámetro"] == "menos de 0,1 (Chinchilla: 20)"
    used = "menos de 0,1\u00a0Wh (menos de 0,01 según kwh_price)"
    assert rows["Energía del entrenamiento"] == used
    assert rows["fp16: saltos previstos"] == "menos de 0,01\u00a0%"
    assert rows["fp16: escala final"] == "0,5"
    assert "difiere en menos de 0,001\u00a0%" in rows["fp16 frente a fp32"]


def test_sin_pasos_calibrados_no_hay_saltos_que_contar() -> None:
    lost = health(scaling=scaling(steps=0, growths=0, scales=(2.0**80,)))
    rows = dict(measurement_rows(CONFIG, made_up(health=lost)))
    assert rows["fp16: pasos saltados"] == rows["fp16: saltos previstos"] == "no medido"
    assert rows["fp16: escala final"] == "1,21e+24"


def test_el_titulo_dice_lo_mismo_en_la_terminal_y_en_el_informe() -> None:
    verdict, terminal = judge(CONFIG, made_up()), StringIO()
    show_preflight(CONFIG, made_up(), verdict, Console(file=terminal, width=100))
    title = "Preflight de diminuto con el perfil cpu: GPU de prueba"
    assert title in terminal.getvalue()
    assert f"# {title}\n" in report_markdown(CONFIG, made_up(), verdict)


@pytest.mark.parametrize(
    "outcome",
    [made_up(), made_up(health=health()), CRASH, CRASH.model_copy(update={"health": health()})],
)
def test_la_figura_tiene_bytes_estables_y_lo_que_hay(outcome: Outcome) -> None:
    picture = picture_svg(CONFIG, outcome)
    assert picture == picture_svg(CONFIG, outcome)
    assert picture.startswith(b"<?xml")
    has_memory, has_window = outcome != CRASH and not isinstance(outcome, Failure), outcome.health
    assert (b"<!-- pasos -->" in picture) is has_memory
    assert ("<!-- 2,00\u00a0GiB -->".encode() in picture) is has_memory
    assert (b"<!-- gradientes hundidos (%) -->" in picture) is (has_window is not None)
