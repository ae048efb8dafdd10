"""Lo que el estudio contesta, con entrenamientos inventados de respuesta conocida."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from tests.benchmarks.loss_study_plan import ADAMW_GRID, SEEDS, SHORT_STEPS, STEPS, Job
from tests.benchmarks.loss_study_table import Verdict, step_cost, tables, verdicts
from tests.benchmarks.test_loss_study_plan import record_of, whole_study

_SHORT = f"muon-wsd, en {SHORT_STEPS} pasos"


def _records(short: Mapping[int, float], rates: int = len(ADAMW_GRID)) -> list[dict[str, Any]]:
    """AdamW acaba en 5, y Muon corto, donde se diga para cada semilla."""
    grid = ADAMW_GRID[:rates]
    found = [record_of(Job("adamw-wsd", lr, 1), 5.0 + 9 * (lr != grid[0])) for lr in grid]
    found += [record_of(Job("adamw-wsd", grid[0], seed), 5.0) for seed in SEEDS[1:]]
    found += [record_of(Job("muon-wsd", 8e-3, seed), 4.8) for seed in SEEDS]
    short_jobs = [(Job("muon-wsd", 8e-3, seed, SHORT_STEPS), loss) for seed, loss in short.items()]
    return found + [record_of(job, loss) for job, loss in short_jobs]


def _about(records: list[dict[str, Any]], words: str) -> Verdict:
    (found,) = (verdict for verdict in verdicts(records) if words in verdict.question)
    return found


@pytest.mark.parametrize(
    ("short", "answer"),
    [
        ({1: 4.9, 2: 4.9, 3: 5.0}, "sí"),
        ({1: 5.1, 2: 5.1, 3: 5.1}, "no"),
        ({1: 4.9, 2: 5.1, 3: 4.9}, "depende de la semilla"),
        ({1: 4.9}, "sí, a falta de 2 semillas"),
        ({1: 5.1, 2: 5.2}, "no, a falta de 1 semilla"),
        ({1: math.inf, 2: math.inf, 3: math.inf}, "no"),
        ({}, "faltan entrenamientos"),
    ],
)
def test_muon_mas_corto_frente_a_la_mejor_tasa_de_adamw(
    short: dict[int, float], answer: str
) -> None:
    assert _about(_records(short), _SHORT).answer == answer


def test_con_menos_de_cinco_tasas_de_adamw_no_se_contesta() -> None:
    verdict = _about(_records(dict.fromkeys(SEEDS, 4.0), rates=4), _SHORT)
    assert verdict.answer == "faltan entrenamientos"
    assert "4 tasas de AdamW de 5" in verdict.reason


def test_la_ventaja_se_resta_semilla_a_semilla() -> None:
    records = _records({})
    assert _about(records, "muon-wsd por debajo de adamw-wsd") == Verdict(
        "¿acaba muon-wsd por debajo de adamw-wsd?",
        "sí",
        "nats de ventaja por semilla: 0,200; 0,200; 0,200; tasa de muon-wsd sin acotar",
    )
    more = [record_of(Job("muon-wsd", lr, 1), 4.9) for lr in (4e-3, 1.6e-2)]
    bounded = _about(records + more, "muon-wsd por debajo de adamw-wsd")
    assert bounded.reason == "nats de ventaja por semilla: 0,200; 0,200; 0,200"
    diverged = [*records, record_of(Job("adamw-cosine", 4e-3, 1), math.inf)]
    verdict = _about(diverged, "adamw-wsd por debajo de adamw-cosine")
    assert verdict.answer == "sí, a falta de 2 semillas"
    assert "divergió" in verdict.reason


def test_la_tasa_de_fabrica_de_transformers_se_juzga_aparte() -> None:
    jobs = {Job("transformers", 5e-5, 1): 7.0, Job("transformers", 2e-3, 1): 4.9}
    records = _records({}) + [record_of(job, loss) for job, loss in jobs.items()]
    assert _about(records, "tasa de fábrica").answer == "sí, a falta de 2 semillas"
    tuned = [verdict for verdict in verdicts(records) if verdict.question.endswith("transformers?")]
    assert [verdict.answer for verdict in tuned] == ["no, a falta de 2 semillas"]


@pytest.mark.parametrize(("share", "answer"), [(0.2, "sí"), (0.5, "no")])
def test_lo_que_gasta_muon_sale_de_la_parte_del_optimizador(share: float, answer: str) -> None:
    spent = {"gradients": 50.0, "optimizer": 50.0 * share, "validation": 1.0}
    free = {"gradients": 80.0, "optimizer": 0.0, "validation": 1.0}
    records = [
        record_of(Job("adamw-wsd", 1e-3, 1), cpu_seconds=free),
        record_of(Job("muon-wsd", 1e-3, 1), cpu_seconds=spent),
        record_of(Job("muon-wsd", 1.0, 1), cpu_seconds=free),
    ]
    assert step_cost(records, "muon") == 1 + share
    verdict = _about(records, f"gasta muon-wsd en {SHORT_STEPS}")
    assert verdict.answer == answer
    assert f"{(1 + share) * SHORT_STEPS / STEPS:.2f}".replace(".", ",") in verdict.reason


def test_las_tablas_llevan_todos_los_entrenamientos_tambien_los_que_divergen() -> None:
    records = [record_of(job) for job in whole_study()]
    records.append(record_of(Job("muon-cosine", 0.5, 1), failure="se detuvo en el paso 3"))
    text = tables(records)
    runs = text.split("\n\n")[-1].splitlines()[2:]
    assert len(runs) == len(records)
    assert sum("se detuvo en el paso 3" in line for line in runs) == 1
    widths = {line.count("|") for line in runs}
    assert len(widths) == 1
    assert "faltan entrenamientos" not in text
    assert "faltan entrenamientos" in tables([])
