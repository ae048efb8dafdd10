from pathlib import Path

import numpy as np
import pytest

from enlace.backends import open_device
from enlace.preflight.memory import kibibyte_field, open_gauge
from tests.support import make_config

MIB = 1 << 20
BACKEND = open_device(make_config().hardware)


def test_el_pico_es_lo_anadido_desde_que_se_abre_el_medidor() -> None:
    before = np.ones(200 * MIB, dtype=np.uint8)
    del before
    gauge = open_gauge(BACKEND)
    block = np.ones(64 * MIB, dtype=np.uint8)
    del block
    peak = gauge.read().peak_bytes
    assert peak is not None
    # Ni los 200 MiB anteriores, ya sueltos, ni menos que los 64 de ahora.
    assert 60 * MIB <= peak < 150 * MIB


def test_en_cpu_se_sabe_la_memoria_libre_y_la_total() -> None:
    use = open_gauge(BACKEND).read()
    assert use.free_bytes is not None
    assert 0 < use.free_bytes <= use.total_bytes


@pytest.mark.parametrize(
    ("content", "expected"),
    [("VmRSS:\t  12 kB\nVmHWM:\t 34 kB\n", 34 * 1024), ("VmRSS:\t12 kB\n", None), ("", None)],
)
def test_un_campo_de_proc_que_falta_no_es_un_cero(
    tmp_path: Path, content: str, expected: int | None
) -> None:
    file = tmp_path / "status"
    file.write_text(content, encoding="ascii")
    assert kibibyte_field(file, "VmHWM") == expected
    assert kibibyte_field(tmp_path / "no-existe", "VmHWM") is None
