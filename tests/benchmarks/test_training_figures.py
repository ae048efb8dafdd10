"""De turnos inventados a cocientes, cuartiles, objetivos, tabla y figura."""

import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import training_figures as figures
from tests.benchmarks.training_figures import Bar
from tests.benchmarks.training_picture import picture_svg
from tests.benchmarks.training_rounds import Comparison, Turn
from tests.benchmarks.training_session import count_kernels
from tests.benchmarks.training_table import bars_table, report

MEGABYTE = 1 << 20


def _turn(wall: float, *, cpu: float = 1.0, peak: int = 1, base: int = 0, steps: int = 2) -> Turn:
    return Turn(wall, cpu, steps, peak, base, (5.0,) * steps)


def _comparison(work: str, ours: float, rivals: dict[str, list[float]]) -> Comparison:
    """Un trabajo de 100 tokens; `ours` son los segundos de todos nuestros turnos de dos pasos."""
    result = Comparison(work, 100, "enlace")
    for name in ("enlace", *rivals):
        result.parameters[name] = 1000
        result.first_losses[name] = [5.5]
    for name, walls in rivals.items():
        pairs = [(_turn(ours), _turn(wall, cpu=2.0)) for wall in walls]
        result.pairs[name] = pairs
    return result


def test_los_cuartiles_de_un_valor_son_el_y_los_de_siete_son_valores_suyos() -> None:
    assert figures.quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert figures.quartiles([7, 1, 2, 6, 3, 5, 4]) == (2.5, 4.0, 5.5)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20))
def test_los_cuartiles_estan_en_orden_y_dentro_de_lo_medido(values: list[float]) -> None:
    low, median, high = figures.quartiles(values)
    assert min(values) <= low <= median <= high <= max(values)
    assert median == pytest.approx(statistics.median(values))


def test_el_cociente_es_de_cada_pareja_y_no_de_las_medianas() -> None:
    # La máquina va la mitad de deprisa en la segunda pareja: los cocientes no lo notan.
    pairs = [(_turn(1.0), _turn(1.5)), (_turn(2.0), _turn(3.0)), (_turn(1.0), _turn(1.5))]
    assert figures.speedup(pairs) == (1.5, 1.5, 1.5)


def test_los_pasos_de_un_turno_no_cambian_el_cociente() -> None:
    pairs = [(_turn(2.0, cpu=2.0, steps=2), _turn(6.0, cpu=8.0, steps=4))]
    assert figures.speedup(pairs).median == 1.5
    assert figures.cpu_ratio(pairs).median == 2.0


def test_las_filas_empiezan_por_enlace_y_dan_tokens_por_segundo() -> None:
    ours, theirs = figures.rows(_comparison("small", 1.0, {"litgpt": [2.0, 2.0]}))
    assert (ours.name, ours.tokens_per_second, ours.speedup) == ("enlace", 200.0, None)
    assert (theirs.name, theirs.tokens_per_second) == ("litgpt", 100.0)
    assert theirs.speedup is not None
    assert theirs.speedup.low == 2.0


def test_el_objetivo_mira_al_peor_cuartil_de_los_rivales_de_fuera() -> None:
    walls = {"litgpt": [1.3, 1.3], "transformers": [2.8, 1.2], "referencia": [1.01, 1.01]}
    bar = figures.bars({"small": _comparison("small", 1.0, walls)})[0]
    # Ni la referencia propia (1,01) ni la peor pareja (1,2): el menor de los cuartiles inferiores.
    assert bar.value == pytest.approx(1.3)
    assert bar.holds is True


def test_sin_rivales_el_objetivo_no_se_da_por_cumplido() -> None:
    bars = figures.bars({"small": _comparison("small", 1.0, {"referencia": [9.0]})})
    assert [bar.holds for bar in bars] == [None, None]
    assert all("no medido" in line for line in bars_table(bars)[2:])


def test_un_objetivo_se_cumple_justo_en_su_limite() -> None:
    for value, at_least, holds in [
        (1.2, True, True),
        (1.19, True, False),
        (1.2, False, True),
        (1.21, False, False),
    ]:
        assert Bar("small", "algo", value, 1.2, at_least).holds is holds


def test_la_memoria_se_compara_con_el_rival_mas_ligero() -> None:
    comparison = _comparison("small", 1.0, {})
    for name, peak in {"litgpt": 400, "transformers": 200, "referencia": 10}.items():
        comparison.parameters[name], comparison.first_losses[name] = 1000, [5.5]
        pair = _turn(1.0, peak=130 * MEGABYTE), _turn(1.0, peak=peak * MEGABYTE)
        comparison.pairs[name] = [pair]
    bar = figures.bars({"small": comparison})[1]
    assert bar.value == pytest.approx(130 / 200)
    assert bar.holds is True


def test_la_perdida_compara_tiempo_y_memoria_de_mas() -> None:
    comparison = _comparison("loss-2048", 1.0, {"loss-plain": [2.0]})
    ours, theirs = _turn(1.0, peak=150, base=100), _turn(2.0, peak=600, base=100)
    comparison.pairs["loss-plain"] = [(ours, theirs)]
    memory, time = figures.bars({"loss-2048": comparison})
    assert (memory.value, time.value) == (50 / 500, 0.5)


def test_la_lectura_se_mide_como_parte_de_un_paso_de_verdad() -> None:
    step = _comparison("small", 4.0, {"litgpt": [8.0]})  # 2 s por paso de 100 tokens
    reading = _comparison("stream", 0.02, {"nanoGPT": [0.2]})  # 10 ms por 100 tokens
    speed, part = figures.bars({"small": step, "stream": reading})[-2:]
    assert speed.value == pytest.approx(10.0)
    assert speed.holds is True
    assert part.value == pytest.approx(0.005)
    assert part.holds is False


def test_la_parte_del_mejor_producto_usa_el_mejor_de_toda_la_ejecucion() -> None:
    comparison = _comparison("tiny-50m", 2.0, {"litgpt": [2.0]})  # 1 s por paso
    comparison.machine = [
        {"flops": 60, "gemm": {"a": 50.0, "b": 80.0}},
        {"flops": 60, "gemm": {"a": 100.0, "b": 70.0}},
    ]
    found = figures.share(comparison, figures.best_gemm(comparison))
    assert found == (0.6, 0.6, 0.6)


def test_la_tabla_nombra_a_quien_falta_y_a_quien_no_se_parece() -> None:
    comparison = _comparison("small", 1.0, {"litgpt": [2.0], "x-transformers": [2.0]})
    comparison.parameters["x-transformers"] = 1020
    comparison.failures["transformers"] = "no instalado (falta transformers)"
    text = report({"fecha": "hoy"}, {"small": comparison})
    assert "| transformers | no instalado (falta transformers) |" in text
    assert "Con otro número de parámetros que ENLACE: x-transformers." in text
    assert "| litgpt | 1000 | 100 | 1,000 | 1,000 |" in text
    assert "2,00 (2,00)" in text
    rows = [line for line in text.split("## Objetivos")[0].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1


def test_el_mfu_dice_de_que_maximo_es_y_los_nucleos_se_cuentan() -> None:
    comparison = _comparison("small", 2.0, {"litgpt": [2.0]})
    card = {"name": "Tarjeta", "flops": 4e12, "clock_khz": 1500000, "dtype": "fp16"}
    comparison.machine = [{"flops": 10**12, "gemm": {"a": 2e12}, "card": card}]
    comparison.kernels["enlace"] = {"kernels": 300, "copies": 4}
    text = report({}, {"small": comparison})
    assert "MFU: 25,0\u00a0% de 4,0 TFLOP/s (Tarjeta, fp16, a 1500 MHz)." in text
    assert "enlace, 300 y 4" in text


def test_solo_son_nucleos_los_sucesos_de_la_gpu_que_no_mueven_memoria() -> None:
    gpu, cpu = SimpleNamespace(name="CUDA"), SimpleNamespace(name="CPU")
    events = [
        SimpleNamespace(name="ampere_sgemm", device_type=gpu),
        SimpleNamespace(name="Memcpy HtoD", device_type=gpu),
        SimpleNamespace(name="Memset (Device)", device_type=gpu),
        SimpleNamespace(name="aten::mm", device_type=cpu),
    ]
    assert count_kernels(events) == {"kernels": 1, "copies": 2}


def test_la_figura_es_la_misma_con_las_mismas_cifras_y_existe_sin_ninguna() -> None:
    comparison = _comparison("small", 1.0, {"litgpt": [2.0, 2.2]})
    assert picture_svg([comparison]) == picture_svg([comparison])
    assert b"<svg" in picture_svg([])
