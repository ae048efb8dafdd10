"""La memoria de cada paso, del texto a los shards, no crece con el corpus."""

from pathlib import Path

import pytest

from tests.benchmarks.corpus_memory import STEPS, measure

_GROWTH = 25_000_000
"""Bytes: con 10 MB más de texto, delata a quien lo guarde varias veces; un goteo menor lo ve el
benchmark, con más texto."""


@pytest.mark.slow
def test_con_seis_veces_mas_texto_la_memoria_es_la_misma(tmp_path: Path) -> None:
    found = {}
    for megabytes in (2, 12):
        work = tmp_path / str(megabytes)
        work.mkdir()
        found[megabytes] = measure(work, megabytes, workers=1, train_megabytes=1.0)
    grown = {step: found[12][step].anonymous - found[2][step].anonymous for step in STEPS}
    assert all(growth < _GROWTH for growth in grown.values()), grown
