import math
from datetime import datetime

import pytest

from enlace.figures import duration, integer, moment, number, percent, size
from enlace.reports.text import visible

THIN = "\u202f"
NBSP = "\u00a0"


@pytest.mark.parametrize(
    ("value", "decimals", "expected"),
    [
        (0.5, 2, "0,50"),
        (1234.5, 1, "1234,5"),
        (9999.99, 1, f"10{THIN}000,0"),
        (50608128, 0, f"50{THIN}608{THIN}128"),
        (-12345.6, 1, f"-12{THIN}345,6"),
        (None, 2, "no medido"),
        (math.nan, 2, "no finito"),
        (math.inf, 2, "no finito"),
    ],
)
def test_los_numeros_se_escriben_como_en_espanol(
    value: float | None, decimals: int, expected: str
) -> None:
    assert number(value, decimals) == expected


def test_lo_que_no_se_midio_nunca_parece_un_cero() -> None:
    assert {integer(None), percent(None), size(None), duration(None)} == {"no medido"}


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1,0 KiB"), (5 << 20, "5,0 MiB"),
     (int(5.25 * (1 << 30)), "5,25 GiB")],
)  # fmt: skip
def test_los_tamanos_usan_la_unidad_que_mejor_se_lee(n_bytes: int, expected: str) -> None:
    assert size(n_bytes) == expected.replace(" ", NBSP)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.00125, "1,25 ms"),
        (0.85, "850 ms"),
        (12.34, "12,3 s"),
        (59.97, "1 min"),
        (245, "4 min 5 s"),
        (3599.6, "1 h"),
        (74160, "20 h 36 min"),
        (86400 * 2 + 3600 * 3, "2 d 3 h"),
        (math.inf, "no finito"),
    ],
)
def test_las_duraciones_se_redondean_sin_pasarse_de_sesenta(seconds: float, expected: str) -> None:
    assert duration(seconds).replace(NBSP, " ") == expected


def test_los_caracteres_de_control_se_ven_y_los_demas_quedan_igual() -> None:
    assert visible("a\0b\x1b[31m\x7f\x85") == "a␀b␛[31m␡\ufffd"
    assert visible("línea\n\ttabulador ñ 👩‍👩‍👧") == "línea\n\ttabulador ñ 👩‍👩‍👧"


def test_la_hora_de_una_maquina_se_dice_en_la_de_esta() -> None:
    here = datetime(2026, 12, 1, 7, 5, 59).astimezone()
    assert moment(here.isoformat()) == "2026-12-01 07:05"
    assert moment("hace un rato") == "hace un rato"
