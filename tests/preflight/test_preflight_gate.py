import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from enlace.backends import describe_device
from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.preflight.gate import require_stamp, run_preflight
from enlace.preflight.measurement import Failure, Outcome
from enlace.preflight.report import measurement_rows, report_markdown
from enlace.preflight.stamp import has_stamp, machine_id
from enlace.preflight.verdict import judge, verdict_key
from tests.preflight.support_preflight import GIB, made_up, memory, scaling
from tests.support import make_config

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


def stamped(root: Path, key: str = KEY) -> bool:
    return has_stamp(root, machine_id(describe_device("cpu")), key)


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


def test_sin_sello_se_mide_antes_de_entrenar_y_con_sello_no(tmp_path: Path) -> None:
    gauge = _Gauge(made_up())
    require_stamp(CONFIG, VALUES, tmp_path, console(), gauge)
    assert stamped(tmp_path)
    require_stamp(CONFIG, VALUES, tmp_path, console(), gauge)
    assert gauge.calls == 1
    require_stamp(CONFIG, VALUES | {"model.d_model": 64}, tmp_path, console(), gauge)
    assert gauge.calls == 2
    assert not (tmp_path / "reports").exists()


def test_sin_sello_y_sin_pasar_no_se_entrena(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no cabe"):
        require_stamp(CONFIG, VALUES, tmp_path, console(), _Gauge(TOO_BIG))
    assert not stamped(tmp_path)


def test_la_terminal_ensena_la_tabla_los_motivos_y_el_veredicto(tmp_path: Path) -> None:
    output = StringIO()
    with pytest.raises(PreflightError):
        run(tmp_path, _Gauge(TOO_BIG), Console(file=output, width=100))
    text = output.getvalue()
    assert "GPU de prueba" in text
    assert "20\u00a0h 36\u00a0min" in text
    assert judge(CONFIG, TOO_BIG).reasons[0] in text
    assert "no superado" in text


def test_el_informe_de_fp16_da_la_cota_y_no_un_cero_por_ciento() -> None:
    outcome = made_up(dtype="fp16", loss_scaling=scaling(steps=100))
    rows = dict(measurement_rows(CONFIG, outcome))
    assert rows["fp16: pasos saltados"] == "0 de 100 (al 95\u00a0%, menos del 3,0\u00a0%)"
    assert rows["fp16: pasos de calibración"] == "2"


def test_lo_no_medido_se_escribe_asi_y_en_json_es_nulo(tmp_path: Path) -> None:
    outcome = made_up(memory=memory(None, peak_allocated_bytes=None, allocation_retries=None))
    rows = dict(measurement_rows(CONFIG, outcome))
    assert rows["RAM: pico añadido y libre"].startswith("no medido")
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
