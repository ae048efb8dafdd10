"""Repetidos: firmas, grupos, quién se queda y quién no se separa."""

import hashlib
import random
from collections.abc import Sequence

import numpy as np
import pytest

from enlace.config.corpus import DedupConfig
from enlace.data.duplicates.resolve import (
    CONTAINED,
    EXACT,
    KEPT,
    NEAR,
    Fingerprints,
    Resolution,
    resolve,
    similarity,
)
from enlace.data.duplicates.shingles import ngram_hashes, word_hashes
from enlace.data.duplicates.signatures import sign
from tests.data.builders import sentences

_CONFIG = DedupConfig(
    exact=True,
    near=True,
    threshold=0.7,
    split_threshold=0.5,
    contained=True,
    contained_share=0.8,
    contained_sample=4,
    ngram=5,
    bands=25,
    rows=5,
    seed=1,
)


def _identifier(text: str) -> tuple[int, int]:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


def _fingerprints(
    texts: Sequence[str], config: DedupConfig, ranks: Sequence[int] | None = None
) -> Fingerprints:
    signed = sign([word_hashes(text) for text in texts], config)
    return Fingerprints(
        np.array([_identifier(text) for text in texts], np.uint64),
        np.array(ranks if ranks is not None else [0] * len(texts), np.uint16),
        np.array([len(text.encode()) for text in texts], np.uint64),
        signed.signatures,
        lambda band: signed.keys[band],
        signed.passages,
    )


def _resolve(
    texts: Sequence[str], config: DedupConfig = _CONFIG, ranks: Sequence[int] | None = None
) -> Resolution:
    return resolve(_fingerprints(texts, config, ranks), config)


def _edited(text: str, share: float, seed: int) -> str:
    """El mismo texto con esa parte de las palabras cambiadas."""
    rng = random.Random(seed)
    words = text.split(" ")
    return " ".join(f"otra{rng.randrange(10**6)}" if rng.random() < share else w for w in words)


_LONG = sentences(60, 1)
_OTHER = sentences(60, 2)


def test_las_firmas_no_cambian() -> None:
    # Si cambian, cambian los documentos que se quedan: solo puede pasar por decisión escrita.
    signed = sign([word_hashes(text) for text in (_LONG, _OTHER, "hola", "")], _CONFIG)
    content = signed.signatures.astype("<u4").tobytes() + signed.keys.astype("<u8").tobytes()
    assert hashlib.sha256(content).hexdigest() == (
        "e8152ab550b03c608b64160e25f4407d56e1142b66a8f8b9f649e8b8688d5d4a"
    )


def test_la_firma_estima_el_jaccard() -> None:
    for share in (0.01, 0.03, 0.08):
        pair = [_LONG, _edited(_LONG, share, 3)]
        one, other = (set(ngram_hashes(word_hashes(text), _CONFIG.ngram).tolist()) for text in pair)
        exact = len(one & other) / len(one | other)
        signatures = sign([word_hashes(text) for text in pair], _CONFIG).signatures
        assert abs(similarity(signatures, np.array([0]), np.array([1]))[0] - exact) < 0.15


def test_iguales_casi_iguales_y_distintos() -> None:
    longer = _LONG + " Fin."
    result = _resolve([_LONG, _OTHER, _LONG, longer, _edited(_LONG, 0.5, 1)])
    assert result.verdicts.tolist() == [NEAR, KEPT, EXACT, KEPT, KEPT]
    assert result.keepers.tolist() == [3, 1, 3, 3, 4]  # de los casi iguales, el más largo


def test_los_acentos_y_los_signos_no_hacen_distinto_un_texto() -> None:
    old = _LONG.replace("é", "e").replace("—", "-").upper()
    assert sorted(_resolve([_LONG, old]).verdicts.tolist()) == [KEPT, NEAR]


def test_se_queda_el_de_la_fuente_que_va_antes() -> None:
    longer = _LONG + " Fin."
    result = _resolve([longer, _LONG, _LONG], ranks=[2, 1, 0])
    assert result.verdicts.tolist() == [NEAR, EXACT, KEPT]


def test_con_near_apagado_se_quedan_pero_no_se_separan() -> None:
    config = _CONFIG.model_copy(update={"near": False, "contained": False})
    texts = [_LONG, _edited(_LONG, 0.02, 1), _edited(_LONG, 0.02, 2), _OTHER]
    result = _resolve(texts, config)
    assert result.verdicts.tolist() == [KEPT] * 4
    assert len(set(result.deciders[:3].tolist())) == 1
    assert result.deciders[3] == 3


def test_con_exact_y_near_apagados_las_copias_no_se_separan() -> None:
    config = _CONFIG.model_copy(update={"near": False, "exact": False, "contained": False})
    result = _resolve([_LONG, _OTHER, _LONG], config)
    assert result.verdicts.tolist() == [KEPT] * 3
    assert result.deciders[0] == result.deciders[2] != result.deciders[1]


def test_los_parientes_por_debajo_del_umbral_tampoco_se_separan() -> None:
    cousin = _edited(_LONG, 0.08, 1)
    result = _resolve([_LONG, cousin, _OTHER])
    assert result.verdicts.tolist() == [KEPT] * 3
    assert result.deciders[0] == result.deciders[1] != result.deciders[2]


def test_los_textos_sin_palabras_no_se_parecen() -> None:
    result = _resolve(["…", "¡!", "?", "— —"])
    assert result.verdicts.tolist() == [KEPT] * 4
    assert result.deciders.tolist() == [0, 1, 2, 3]


def test_nada_depende_del_orden() -> None:
    rng = random.Random(5)
    texts = [sentences(20, seed) for seed in range(30)]
    texts += [
        _edited(text, rng.choice((0.01, 0.03, 0.06, 0.1)), rng.randrange(99)) for text in texts * 3
    ]
    texts = list(dict.fromkeys(texts))
    reference = _resolve(texts)
    by_text = {
        text: (int(reference.verdicts[i]), texts[int(reference.deciders[i])])
        for i, text in enumerate(texts)
    }
    assert {KEPT, NEAR, CONTAINED} == set(reference.verdicts.tolist())
    for seed in range(3):
        shuffled = random.Random(seed).sample(texts, len(texts))
        result = _resolve(shuffled)
        assert by_text == {
            text: (int(result.verdicts[i]), shuffled[int(result.deciders[i])])
            for i, text in enumerate(shuffled)
        }


def test_una_plantilla_repetida_mil_veces_se_queda_una_vez() -> None:
    texts = [f"{_LONG} Copia número {number}." for number in range(1000)]
    verdicts = _resolve(texts).verdicts
    assert (verdicts == KEPT).sum() == 1


@pytest.mark.parametrize("count", [1, 2])
def test_un_corpus_minimo(count: int) -> None:
    result = _resolve([_LONG, _OTHER][:count])
    assert result.verdicts.tolist() == [KEPT] * count


def test_el_capitulo_de_un_libro_sobra_si_esta_el_libro() -> None:
    chapters = [sentences(60, 20 + number) for number in range(6)]
    book = "\n\n".join(chapters).replace("é", "e")
    result = _resolve([*chapters[:4], book, _OTHER])
    assert result.verdicts.tolist() == [CONTAINED] * 4 + [KEPT] * 2
    assert result.keepers.tolist() == [4] * 5 + [5]
    # Sobran aunque su fuente vaya antes: el libro dice lo que ellos y más.
    assert _resolve([chapters[0], book], ranks=[0, 1]).verdicts.tolist() == [CONTAINED, KEPT]


def test_dos_copias_cortadas_por_otro_sitio_se_quedan_una_vez() -> None:
    words = " ".join(sentences(50, 40 + number) for number in range(10)).split(" ")
    first = [" ".join(words[start : start + 400]) for start in range(0, len(words), 400)]
    second = [
        " ".join(words[max(0, start - 150) : start + 150]) for start in range(0, len(words), 300)
    ]
    result = _resolve([*first, *second])
    kept = sum(
        len(text) for text, v in zip([*first, *second], result.verdicts, strict=True) if not v
    )
    assert kept < 1.35 * sum(len(text) for text in first)


def test_si_no_se_quita_lo_contenido_no_se_separa() -> None:
    chapters = [sentences(60, 20 + number) for number in range(4)]
    config = _CONFIG.model_copy(update={"contained": False})
    foreign = " ".join(f"palabra{number}" for number in range(400))
    result = _resolve([*chapters, " ".join(chapters), foreign], config)
    assert result.verdicts.tolist() == [KEPT] * 6
    assert len(set(result.deciders[:5].tolist())) == 1
    assert result.deciders[5] == 5


def test_una_cita_larga_no_hace_sobrar_a_nadie() -> None:
    quote = sentences(12, 3)
    texts = [f"{sentences(40, 70 + number)} {quote}" for number in range(5)]
    assert _resolve(texts).verdicts.tolist() == [KEPT] * 5


def test_los_ngramas_repetidos_se_cuentan_por_partes_igual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [sentences(30, seed) for seed in range(12)]
    texts += [f"{texts[n]} {texts[n + 1]}" for n in range(6)]
    whole = _resolve(texts)
    monkeypatch.setattr("enlace.data.duplicates.passages._AT_ONCE", 50)
    parts = _resolve(texts)
    assert CONTAINED in whole.verdicts
    assert whole.verdicts.tolist() == parts.verdicts.tolist()
    assert whole.keepers.tolist() == parts.keepers.tolist()
