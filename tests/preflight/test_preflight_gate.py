import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from enlace.config.load import load_config
from enlace.config.schema import Config
from enlace.config.views import declared_params, declared_values
from enlace.errors import PreflightError
from enlace.preflight.estimate.record import Comparison, EstimateError
from enlace.preflight.gate import require_preflight, run_preflight
from enlace.preflight.measurement import CardState, EnergyUse, Failure, Outcome
from enlace.preflight.neutral import PREFLIGHT_LR, complete_config
from enlace.preflight.report import headline, report_markdown
from enlace.preflight.rows import measurement_rows
from enlace.preflight.stamp import has_stamp, machine_id
from enlace.preflight.verdict import judge, verdict_key, write_verdict
from tests.preflight.support_preflight import GIB, health, made_up, memory, scaling
from tests.support import make_config

ROOT = Path(__file__).parents[2]
CONFIG = make_config()
VALUES = {"model.d_model": 32, "hardware.dtype": "fp32"}
KEY = verdict_key(VALUES)
TOO_BIG = made_up(memory=memory(9 * GIB))
CRASH = Failure(kind="crashed", detail="SIGABRT")


class _Gauge:
    """Da siempre la misma medida y cuenta cuántas se le piden."""

    def __init__(self, outcome: Outcome, watch: Callable[[], object] = lambda: None) -> None:
        self.outcome = outcome
        self.calls = 0
        self.seen: object = None
        self._watch = watch

    def __call__(self, config: Config, scratch: Path) -> Outcome:
        self.calls += 1
        self.seen = self._watch()
        return self.outcome


def console() -> Console:
    return Console(file=StringIO(), width=100)


def stamped(root: Path, key: str = KEY, device: str = "cpu") -> bool:
    return has_stamp(root, machine_id(device), key)


def run(root: Path, gauge: _Gauge, to: Console | None = None) -> None:
    run_preflight(CONFIG, VALUES, root, root / "reports", to or console(), gauge)


def test_si_pasa_quedan_veredicto_informe_y_sello(tmp_path: Path) -> None:
    run(tmp_path, _Gauge(made_up()))
    verdict = json.loads((tmp_path / "reports/verdict.json").read_text("utf-8"))
    assert verdict == {"key": KEY, "passed": True}
    report = json.loads((tmp_path / "reports/report.json").read_text("utf-8"))
    assert report["measurement"]["parameters"] == made_up().parameters
    assert report["fit"] == "cabe"
    assert (tmp_path / "reports/report.md").is_file()
    assert (tmp_path / "reports/report.svg").is_file()
    assert stamped(tmp_path)


def test_otra_medida_no_cambia_un_byte_del_veredicto(tmp_path: Path) -> None:
    run(tmp_path, _Gauge(made_up()))
    before = (tmp_path / "reports/verdict.json").read_bytes()
    run(tmp_path, _Gauge(made_up(tokens_per_second=1.0)))
    assert (tmp_path / "reports/verdict.json").read_bytes() == before


@pytest.mark.parametrize("outcome", [TOO_BIG, CRASH])
def test_si_no_pasa_hay_informe_y_no_queda_ni_veredicto_ni_sello(
    tmp_path: Path, outcome: Outcome
) -> None:
    run(tmp_path, _Gauge(made_up()))
    with pytest.raises(PreflightError) as caught:
        run(tmp_path, _Gauge(outcome))
    assert str(caught.value) == "; además, ".join(judge(CONFIG, outcome).reasons)
    assert not (tmp_path / "reports/verdict.json").exists()
    assert not stamped(tmp_path)
    report = json.loads((tmp_path / "reports/report.json").read_text("utf-8"))
    assert report["passed"] is False
    assert report["reasons"] == list(judge(CONFIG, outcome).reasons)


def test_durante_la_medida_no_queda_en_pie_el_veredicto_anterior(tmp_path: Path) -> None:
    run(tmp_path, _Gauge(made_up()))
    gauge = _Gauge(made_up(), (tmp_path / "reports/verdict.json").exists)
    run(tmp_path, gauge)
    assert gauge.seen is False


CUDA = make_config({"hardware.device": "cuda", "hardware.sdpa_backend": "mem_efficient"})


class _Door:
    """La puerta con todo lo que toca la máquina sustituido y anotado."""

    def __init__(self, root: Path, outcome: Outcome, config: Config = CONFIG) -> None:
        self.root, self.config = root, config
        self.events: list[str] = []
        self.gauge = _Gauge(outcome, lambda: self.events.append("medida"))
        self.card = "GPU de prueba"

    def require(self, values: dict[str, object] | None = None, verdict: bool = True) -> None:
        values = VALUES if values is None else values
        file = self.root / "verdict.json"
        if verdict:
            write_verdict(file, verdict_key(values))
        require_preflight(
            self.config, values, self.root, file, console(), self.gauge, self._describe, self._lock
        )

    def _describe(self, device: str) -> str:
        self.events.append(f"describe {device}")
        return self.card

    @contextmanager
    def _lock(self, device: str) -> Iterator[None]:
        self.events.append(f"cierra {device}")
        yield
        self.events.append(f"abre {device}")


def test_sin_sello_se_mide_antes_de_entrenar_y_con_sello_no(tmp_path: Path) -> None:
    door = _Door(tmp_path, made_up())
    door.require()
    assert stamped(tmp_path)
    door.require()
    assert door.gauge.calls == 1
    door.require({**VALUES, "model.d_model": 64})
    assert door.gauge.calls == 2
    assert not (tmp_path / "reports").exists()


def test_la_tarjeta_se_cierra_solo_mientras_se_mide(tmp_path: Path) -> None:
    door = _Door(tmp_path, made_up(), CUDA)
    door.require()
    assert door.events == ["describe cuda", "cierra cuda", "medida", "abre cuda"]
    assert stamped(tmp_path, device="GPU de prueba")
    door.events.clear()
    door.require()
    assert door.events == ["describe cuda"]
    door.card = "otra"
    door.require()
    assert door.gauge.calls == 2


def test_sin_sello_y_sin_pasar_no_se_entrena(tmp_path: Path) -> None:
    door = _Door(tmp_path, TOO_BIG, CUDA)
    with pytest.raises(PreflightError, match="no cabe"):
        door.require()
    assert not stamped(tmp_path, device="GPU de prueba")
    assert door.events[-1] == "medida"


def test_sin_veredicto_de_estos_valores_ni_se_mira_la_maquina(tmp_path: Path) -> None:
    door = _Door(tmp_path, made_up(), CUDA)
    with pytest.raises(PreflightError, match="make preflight"):
        door.require(verdict=False)
    write_verdict(tmp_path / "verdict.json", verdict_key({"model.d_model": 1}))
    with pytest.raises(PreflightError, match="otra configuración"):
        door.require(verdict=False)
    assert door.events == []


def test_la_terminal_ensena_la_tabla_los_motivos_y_el_veredicto(tmp_path: Path) -> None:
    output = StringIO()
    with pytest.raises(PreflightError):
        run(tmp_path, _Gauge(TOO_BIG), Console(file=output, width=100))
    text = output.getvalue()
    assert "GPU de prueba" in text
    assert "20\u00a0h 36\u00a0min" in text
    assert judge(CONFIG, TOO_BIG).reasons[0] in text
    assert "no superado" in text


def test_la_ultima_linea_dice_si_cabe_y_si_se_puede_entrenar() -> None:
    assert headline(judge(CONFIG, made_up())).startswith("Cabe. Preflight superado")
    assert headline(judge(CONFIG, TOO_BIG)).startswith("No cabe. Preflight no superado")
    tight = made_up(memory=memory(4 * GIB))
    assert headline(judge(CONFIG, tight)).startswith("Justo. Preflight no superado")


def test_el_informe_de_fp16_da_la_cota_y_no_un_cero_por_ciento() -> None:
    outcome = made_up(dtype="fp16", health=health(scaling=scaling(steps=100)))
    rows = dict(measurement_rows(CONFIG, outcome))
    assert rows["fp16: pasos saltados"] == "0 de 100 (al 95\u00a0%, menos del 3,0\u00a0%)"
    assert rows["fp16: saltos de calibración"] == "2"
    assert rows["fp16: escalas que sirven"] == "2^4 a 2^18 (14 bits)"
    assert rows["fp16: mayor activación"] == "salida de FFN de la capa 0, a 10,0 bits de 65504"


def test_el_informe_da_la_energia_y_el_estado_de_la_tarjeta_si_se_saben() -> None:
    card = CardState(
        sm_clock_mhz=1500,
        max_sm_clock_mhz=1680,
        temperature_c=71,
        power_limit_watts=160.0,
        throttling=("límite de potencia",),
    )
    energy = EnergyUse(source="contador", watts=150.0, total_kwh=3.09, cost=0.62)
    rows = dict(measurement_rows(CONFIG, made_up(card=card, energy=energy)))
    assert rows["Energía del entrenamiento"] == "3,09\u00a0kWh (0,62 según kwh_price)"
    assert rows["Reloj y temperatura"] == "1500 de 1680 MHz, 71 °C"
    assert rows["Frenos del reloj"] == "límite de potencia"
    assert "Energía del entrenamiento" not in dict(measurement_rows(CONFIG, made_up()))


def test_lo_no_medido_se_escribe_asi_y_en_json_es_nulo(tmp_path: Path) -> None:
    outcome = made_up(memory=memory(None, peak_allocated_bytes=None, allocation_retries=None))
    rows = dict(measurement_rows(CONFIG, outcome))
    assert rows["RAM: necesaria y disponible"].startswith("no medido")
    run(tmp_path, _Gauge(outcome))
    report = json.loads((tmp_path / "reports/report.json").read_text("utf-8"))
    assert report["measurement"]["memory"]["peak_bytes"] is None
    assert len(report["warnings"]) == 1


def test_el_markdown_dice_lo_mismo_que_la_terminal() -> None:
    text = report_markdown(CONFIG, TOO_BIG, judge(CONFIG, TOO_BIG))
    assert "no superado" in text
    for reason in judge(CONFIG, TOO_BIG).reasons:
        assert f"- {reason}" in text
    for name, value in measurement_rows(CONFIG, TOO_BIG):
        assert f"| {name} | {value} |" in text
    assert "| Qué" not in report_markdown(CONFIG, CRASH, judge(CONFIG, CRASH))


def test_la_tasa_del_ensayo_es_menor_que_la_de_todos_los_runs_y_se_dice() -> None:
    runs = sorted((ROOT / "configs/runs").glob("*.yaml"))
    assert runs
    assert all(load_config(run).train.lr > PREFLIGHT_LR for run in runs)
    declared = declared_values(load_config(runs[0]), declared_params("preflight", ROOT))
    config = complete_config(declared)
    rows = dict(measurement_rows(config, made_up()))
    assert rows["Tasa de aprendizaje del ensayo"] == "0,0001 (fija)"


def test_el_informe_compara_lo_medido_con_lo_estimado(tmp_path: Path) -> None:
    error = EstimateError(
        peak_memory=0.125,
        allocated_memory=None,
        tokens_per_second=-0.5,
        total_seconds=1.0,
        checkpoint_bytes=0.0,
    )
    guess = Comparison(
        peak_bytes=GIB,
        live_bytes=GIB // 2,
        tokens_per_second=27_200.8,
        total_seconds=3600.0,
        error=error,
    )
    output = console()
    run_preflight(
        CONFIG, VALUES, tmp_path, tmp_path / "reports", output, _Gauge(made_up()), lambda *_: guess
    )
    assert isinstance(output.file, StringIO)
    markdown = (tmp_path / "reports/report.md").read_text("utf-8")
    for text in (output.file.getvalue(), markdown):
        assert "1,00\u00a0GiB; se midió un 12,5\u00a0% más" in text
        assert "27\u202f201 tokens/s; se midió un 50,0\u00a0% menos" in text
    report = json.loads((tmp_path / "reports/report.json").read_text("utf-8"))
    assert report["estimate"]["error"]["peak_memory"] == 0.125


def test_sin_medida_no_se_compara(tmp_path: Path) -> None:
    def never(*_: object) -> Comparison:
        raise AssertionError

    with pytest.raises(PreflightError):
        run_preflight(
            CONFIG, VALUES, tmp_path, tmp_path / "reports", console(), _Gauge(CRASH), never
        )
    report = json.loads((tmp_path / "reports/report.json").read_text("utf-8"))
    assert report["estimate"] is None
