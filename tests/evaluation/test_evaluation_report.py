import json
import math
import re
from pathlib import Path

import pytest

from enlace.config.schema import EvaluationConfig
from enlace.evaluation.loss import LossFigures
from enlace.evaluation.report import (
    EvaluationReport,
    Lineage,
    explain,
    lineage_of,
    report_html,
    write_evaluation_report,
)
from enlace.evaluation.samples import Sample
from enlace.reports.curve import Curve
from tests.reports.test_report_pages import parse

FIGURES = LossFigures(2.5, math.exp(2.5), 1.6, 12345, 50000)
LINEAGE = Lineage("demo", "a" * 64, "b" * 64, 300, "c" * 40, False, "CPU de prueba")
SETTINGS = EvaluationConfig(
    prompts=("Había una vez",), max_new_tokens=8, temperature=0.8, top_k=40, seed=7
)
SAMPLES = (
    Sample("Había una vez", " un <b>gato</b> & un ``` perro\0", 8, False),
    Sample("Fin", "", 1, True),
)
CURVE = Curve(((1, 5.0), (2, 4.0)), ((2, 4.5),))


def make(figures: LossFigures = FIGURES, curve: Curve | None = CURVE) -> EvaluationReport:
    return EvaluationReport(figures, SAMPLES, SETTINGS, 2048, LINEAGE, curve)


def test_se_escriben_los_cuatro_ficheros_y_son_estables(tmp_path: Path) -> None:
    write_evaluation_report(make(), tmp_path / "una")
    write_evaluation_report(make(), tmp_path / "otra")
    names = sorted(file.name for file in (tmp_path / "una").iterdir())
    assert names == ["metrics.json", "report.html", "report.md", "samples.md"]
    for name in names:
        assert (tmp_path / "una" / name).read_bytes() == (tmp_path / "otra" / name).read_bytes()


def test_las_metricas_son_las_cifras_exactas(tmp_path: Path) -> None:
    write_evaluation_report(make(), tmp_path)
    assert json.loads((tmp_path / "metrics.json").read_text("utf-8")) == {
        "loss": 2.5,
        "perplexity": math.exp(2.5),
        "bits_per_byte": 1.6,
        "tokens": 12345,
        "raw_bytes": 50000,
    }


def test_la_pagina_esta_bien_formada_y_no_pide_nada_a_la_red() -> None:
    page = report_html(make())
    parsed = parse(page)
    assert "script" not in parsed.seen
    assert "link" not in parsed.seen
    assert re.findall(r"(?:src|href)=\"(?!data:)", page) == []
    assert "http" not in re.sub(r"data:[^\"]*", "", page)
    assert "@import" not in page
    assert "url(" not in page


def test_la_pagina_ensena_muestras_cifras_y_linaje_tal_cual() -> None:
    text = parse(report_html(make())).text
    assert "Había una vez un <b>gato</b> & un ``` perro␀" in text
    assert "1,600" in text
    assert "12\u202f345" in text
    for value in (LINEAGE.identity, LINEAGE.data, LINEAGE.commit, "paso 300", LINEAGE.device):
        assert value is not None
        assert value in text


@pytest.mark.parametrize("curve", [None, Curve((), ())])
def test_sin_curva_el_informe_sale_sin_figura(curve: Curve | None) -> None:
    page = report_html(make(curve=curve))
    assert "img" not in parse(page).seen
    assert "Cómo aprendió" not in page
    assert "Cómo aprendió" in report_html(make())


def test_una_cifra_que_no_existe_no_se_inventa(tmp_path: Path) -> None:
    figures = LossFigures(math.nan, math.nan, None, 10, None)
    write_evaluation_report(make(figures), tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text("utf-8"))
    assert metrics["loss"] is None
    assert metrics["bits_per_byte"] is None
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "no finito" in page
    assert "no medido" in page
    assert "compresor" not in page


def test_la_explicacion_traduce_las_cifras() -> None:
    text = explain(FIGURES, 2048)
    assert "entre 12,2 opciones" in text
    assert "en el 20,0\u00a0% de su tamaño" in text
    assert "ln 2048, es 7,625" in text


def test_el_markdown_de_las_muestras_no_se_rompe_con_acentos_graves(tmp_path: Path) -> None:
    write_evaluation_report(make(), tmp_path)
    lines = (tmp_path / "samples.md").read_text("utf-8").splitlines()
    fences = [line for line in lines if line.startswith("```")]
    assert fences == ["````text", "````", "```text", "```"]
    assert "Había una vez▸ un <b>gato</b> & un ``` perro␀" in lines
    assert LINEAGE.line() in lines


def test_el_linaje_sale_del_manifiesto_y_no_calla_los_cambios_sin_guardar() -> None:
    manifest = {
        "run_name": "demo",
        "identity": "a" * 64,
        "data": "b" * 64,
        "step": 300,
        "origin": {"git": {"commit": "c" * 40, "diff_sha256": None}},
        "segments": [{"device": "otra"}, {"device": "CPU de prueba"}],
    }
    assert lineage_of(manifest) == LINEAGE
    assert "con cambios" not in LINEAGE.line()
    changed = manifest | {"origin": {"git": {"commit": "c" * 40, "diff_sha256": "d" * 64}}}
    assert f"commit {'c' * 12} con cambios" in lineage_of(changed).line()
    assert "código fuera de git" in lineage_of(manifest | {"origin": {}}).line()
