"""La muestra que viene en el repositorio: suficiente, limpia, variada y con licencia."""

import gzip
import re
import unicodedata
from pathlib import Path

import pytest

from enlace.data.formats import extensions
from enlace.data.rules.characters import normalize
from enlace.data.selection import select_files

_SAMPLE = Path(__file__).parents[2] / "data" / "sample"
_MIN_BYTES = 150_000
_MIN_GZIP_RATIO = 0.33
_MAX_REPEATED_8_GRAMS = 0.005


@pytest.fixture(scope="module")
def texts() -> dict[str, bytes]:
    names = select_files(_SAMPLE, ("**/*.txt",), extensions("text")).files
    return {name: (_SAMPLE / name).read_bytes() for name in names}


def test_hay_texto_suficiente(texts: dict[str, bytes]) -> None:
    assert sum(map(len, texts.values())) >= _MIN_BYTES


def test_cada_fichero_es_utf8_nfc_con_lf_y_no_necesita_limpieza(texts: dict[str, bytes]) -> None:
    for name, content in texts.items():
        text = content.decode("utf-8")
        assert unicodedata.is_normalized("NFC", text), name
        assert "\r" not in text, name
        assert text.endswith("\n"), name
        assert normalize(text) == text.rstrip("\n"), name


def test_no_hay_dos_ficheros_iguales(texts: dict[str, bytes]) -> None:
    assert len({normalize(content.decode()) for content in texts.values()}) == len(texts)


def test_el_texto_no_se_comprime_como_uno_repetido(texts: dict[str, bytes]) -> None:
    joined = b"".join(texts.values())
    ratio = len(gzip.compress(joined, 9, mtime=0)) / len(joined)
    assert ratio > _MIN_GZIP_RATIO


def test_casi_ningun_grupo_de_ocho_palabras_se_repite(texts: dict[str, bytes]) -> None:
    share = repeated_share([content.decode() for content in texts.values()], 8)
    assert share < _MAX_REPEATED_8_GRAMS


def test_la_medida_de_repeticion_mide() -> None:
    assert repeated_share(["uno dos tres cuatro"], 2) == 0
    assert repeated_share(["uno dos tres", "UNO, dos tres"], 2) == 0.5


def test_la_muestra_tiene_licencia_y_nada_que_los_patrones_no_lean(texts: dict[str, bytes]) -> None:
    assert (_SAMPLE / "LICENSE.md").read_text("utf-8").strip()
    present = {p.relative_to(_SAMPLE).as_posix() for p in _SAMPLE.rglob("*") if p.is_file()}
    assert present - set(texts) <= {"LICENSE.md", "README.md"}


def repeated_share(texts: list[str], size: int) -> float:
    """Fracción de grupos de `size` palabras (sin cruzar textos) que ya habían salido."""
    seen: set[tuple[str, ...]] = set()
    total = repeated = 0
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        for start in range(len(words) - size + 1):
            gram = tuple(words[start : start + size])
            total += 1
            repeated += gram in seen
            seen.add(gram)
    return repeated / max(1, total)
