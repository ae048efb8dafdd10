"""Las cuentas con que se juzga el corpus: exactas, comparadas con las de conjuntos de Python."""

from itertools import combinations

import numpy as np
import pytest

from enlace.data.duplicates.shingles import ngram_hashes, word_hashes
from tests.benchmarks.corpus_encodings import ENCODINGS, comes_back
from tests.benchmarks.exact_overlap import common_grams, containment, jaccard, pieces_like
from tests.data.builders import sentences


def test_el_parecido_y_la_contencion_son_los_de_conjuntos() -> None:
    rng = np.random.default_rng(1)
    grams = [np.unique(rng.integers(0, 60, rng.integers(5, 40), np.uint64)) for _ in range(12)]
    sets = [set(each.tolist()) for each in grams]
    expected = {}
    for one, other in combinations(range(len(sets)), 2):
        common = len(sets[one] & sets[other])
        assert containment(grams[one], grams[other]) == common / len(sets[one])
        value = common / len(sets[one] | sets[other])
        assert jaccard(grams[one], grams[other]) == value
        if common:
            expected[one, other] = value
    first, second, found = common_grams(grams)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    assert dict(zip(pairs, found.tolist(), strict=True)) == expected


def test_sin_nada_en_comun_no_hay_parejas() -> None:
    grams = [np.array([1, 2], np.uint64), np.array([3], np.uint64)]
    assert [len(each) for each in common_grams(grams)] == [0, 0, 0]


def test_la_otra_edicion_se_corta_donde_empieza_cada_trozo() -> None:
    pieces = [word_hashes(sentences(20, seed)) for seed in (1, 2, 3)]
    whole = np.concatenate(pieces)
    found = pieces_like(pieces, whole, 5)
    assert [each.tolist() for each in found] == [each.tolist() for each in pieces]
    unknown = word_hashes("estas cinco palabras no están")
    assert len(ngram_hashes(unknown, 5)) == 1
    assert len(pieces_like([unknown], whole, 5)) == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_un_acierto_es_devolver_el_mismo_texto(encoding: str) -> None:
    text = "¡Qué canción! ¿La oíste el año pasado en Logroño?"
    assert comes_back(text, encoding, lambda content: encoding)
    assert not comes_back(text, encoding, lambda content: None)
    assert not comes_back(text, encoding, lambda content: "no-existe")
    assert not comes_back(text, encoding, lambda content: "cp037")
