"""La memoria de cada paso, del texto a los shards, no crece con el corpus."""

import ctypes
import os
import random
from pathlib import Path

import pytest

from enlace.data.encode import FastEncoder
from enlace.data.tokenizer import TextTokenizer, train_bpe
from tests.benchmarks.corpus_memory import STEPS, measure
from tests.benchmarks.corpus_throughput import memory_of

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


_WORDS_PER_TEXT = 20_000
_TEXTS = 20
_REMEMBERED = 15_000_000
"""Bytes: menos de la mitad de lo que ocupan, recordadas, las palabras nuevas de la prueba."""


def _growth(renewed: int) -> int:
    """Bytes que crece la memoria del codificador al pasar por palabras siempre nuevas."""
    tokenizer = TextTokenizer(train_bpe(["la casa del río"] * 20, 300, 2))
    encoder, rng = FastEncoder(tokenizer, renewed), random.Random(1)
    sizes = []
    for _ in range(_TEXTS):
        words = ("".join(rng.choices("abcdefghijlmno", k=8)) for _ in range(_WORDS_PER_TEXT))
        encoder.encode_arrays([" ".join(words)])
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # lo libre vuelve: se mide lo que se guarda
        sizes.append(memory_of(os.getpid())[1])
    return sizes[-1] - sizes[3]


@pytest.mark.slow
def test_el_codificador_no_recuerda_todas_las_palabras_que_ha_visto() -> None:
    kept = _growth(renewed=1 << 40)
    assert kept > 2 * _REMEMBERED  # si ya olvida por su cuenta, sobra rehacerlo
    assert _growth(renewed=500_000) < _REMEMBERED
