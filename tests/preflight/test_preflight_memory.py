import gc
import mmap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from enlace.backends import open_device
from enlace.preflight.memory import kibibyte_field, open_gauge
from tests.preflight.support_preflight import GIB, memory
from tests.support import make_config

MIB = 1 << 20
BACKEND = open_device(make_config().hardware)


@pytest.fixture(autouse=True)
def _settled() -> None:
    """Lo que otras pruebas dejaron por soltar no debe soltarse a mitad de una medida."""
    gc.collect()


def touch(mebibytes: int) -> None:
    """Ocupa y suelta páginas del sistema: las de `malloc` podrían estar ya ocupadas de antes."""
    with mmap.mmap(-1, mebibytes * MIB) as pages:
        for start in range(0, len(pages), mmap.PAGESIZE):
            pages[start] = 1


def test_el_pico_es_lo_anadido_desde_que_se_abre_el_medidor() -> None:
    touch(200)
    gauge = open_gauge(BACKEND)
    touch(64)
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


def test_cada_fase_empieza_su_pico_de_cero_y_la_mayor_manda() -> None:
    gauge = open_gauge(BACKEND)
    with gauge.phase("montaje"):
        touch(96)
    with gauge.phase("pasos"):
        touch(32)
    use = gauge.read()
    first, second = (phase.peak_bytes for phase in use.phases)
    assert first is not None
    assert second is not None
    assert first >= 90 * MIB
    assert 30 * MIB <= second < 80 * MIB
    assert (use.peak_bytes, use.steady_bytes) == (first, second)


def test_la_fragmentacion_es_lo_reservado_sin_usar_y_lo_necesario_incluye_lo_ajeno() -> None:
    use = memory(100, peak_allocated_bytes=75, non_torch_bytes=7)
    assert use.fragmentation == 0.25
    assert use.needed_bytes == 107
    assert memory(100, peak_allocated_bytes=None).fragmentation is None
    assert memory(None).needed_bytes is None


class _FakeCuda:
    """Las cifras que da `torch.cuda`: 5 GiB libres, luego 3, con 1,5 reservados."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 5 * GIB
        answers: dict[str, object] = {
            "mem_get_info": lambda _: (self.free, 6 * GIB),
            "reset_peak_memory_stats": lambda _: None,
            "max_memory_reserved": lambda _: 2 * GIB,
            "max_memory_allocated": lambda _: GIB,
            "memory_reserved": lambda _: 3 * GIB // 2,
            "memory_stats": lambda _: {"num_alloc_retries": 4},
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)


def test_en_cuda_se_cuenta_lo_que_torch_no_reserva_y_el_contexto(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = _FakeCuda(monkeypatch)
    description = replace(BACKEND.description, kind="cuda", memory_bytes=6 * GIB)
    backend = replace(BACKEND, device=torch.device("cuda"), description=description)
    gauge = open_gauge(backend, free_before_context=5 * GIB + 300 * MIB)
    with gauge.phase("pasos"):
        cuda.free = 3 * GIB
    use = gauge.read()
    assert (use.peak_bytes, use.peak_allocated_bytes, use.steady_bytes) == (2 * GIB, GIB, 2 * GIB)
    assert use.non_torch_bytes == GIB // 2
    assert use.context_bytes == 300 * MIB
    assert use.free_bytes == 5 * GIB
    assert use.allocation_retries == 4
    assert use.fragmentation == 0.5
