"""Palabras y n-gramas: lo que se compara es lo que se lee, no cómo está escrito."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from enlace.data.duplicates.shingles import mix, ngram_hashes, word_hashes

_WORDS = st.lists(st.text("abcñáé", min_size=1, max_size=4), max_size=12)


def _same(one: str, other: str) -> bool:
    return np.array_equal(word_hashes(one), word_hashes(other))


def test_son_los_xxh3_de_las_palabras_en_minuscula_y_sin_tildes() -> None:
    expected = [xxhash.xxh3_64_intdigest(word) for word in (b"cien", b"pinguinos", b"en", b"2024")]
    assert word_hashes("¡Cien pingüinos, en 2024!").tolist() == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("¿Qué pasó?", "que paso"),
        ("Fué á Cádiz…", "fue a cádiz"),
        ("—Hola —dijo—.", "hola dijo"),
        ("“comillas” y «comillas»", "comillas y comillas"),
        ("cafe\u0301 con canción", "café con cancion"),
        ("una\nlínea\ty otra", "una línea y otra"),
    ],
)
def test_la_ortografia_no_distingue(one: str, other: str) -> None:
    assert _same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("casa", "cosa"), ("a b", "ab"), ("中文", "文中"), ("да", "не"), ("1 2", "2 1")],
)
def test_las_palabras_si(one: str, other: str) -> None:
    assert not _same(one, other)


@pytest.mark.parametrize("text", ["", " \n", "¡¿…?!", "— «»"])
def test_sin_palabras_no_hay_nada(text: str) -> None:
    assert len(word_hashes(text)) == len(ngram_hashes(word_hashes(text), 5)) == 0


@given(_WORDS, st.integers(1, 6))
def test_un_ngrama_depende_de_sus_palabras_y_de_su_orden(words: list[str], ngram: int) -> None:
    hashes = word_hashes(" ".join(words))
    grams = ngram_hashes(hashes, ngram)
    assert len(grams) == (max(1, len(words) - ngram + 1) if words else 0)
    size = min(ngram, len(words))
    series = [tuple(hashes[i : i + size].tolist()) for i in range(len(grams))]
    assert len(set(grams.tolist())) == len(set(series))
    for start, gram in enumerate(grams.tolist()):
        assert ngram_hashes(hashes[start : start + size], ngram).tolist() == [gram]


def test_mix_es_una_biyeccion_conocida() -> None:
    # Los primeros valores de SplitMix64 con semilla 0: mix de los múltiplos de su incremento.
    steps = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(steps).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
