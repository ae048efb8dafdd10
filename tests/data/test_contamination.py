"""Contaminación: los textos de evaluación se encuentran, y los que no están no se inventan."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from enlace.data.duplicates.shingles import word_hashes
from enlace.data.preparation.contamination import Searcher
from enlace.data.preparation.evaluation_texts import SHORTEST, EvaluationTexts, index_evaluation
from enlace.errors import DataError
from tests.data.builders import Prose, sentences, write_tree
from tests.support import make_config

_LONG = sentences(6, 1)  # unas cincuenta palabras
_SHORT = "El herrero perdió tres naranjas al amanecer"
_TINY = "la niña cosía"


def _searcher(
    folder: Path, files: dict[str, Prose], **changes: Any
) -> tuple[EvaluationTexts, Searcher]:
    values: dict[str, Any] = {"include": ["eval/*"], "ngram": 13, "min_overlap": 0.5} | changes
    values["action"] = "report"
    data = make_config({f"data.contamination.{key}": value for key, value in values.items()}).data
    write_tree(folder / "src", files)
    (folder / "work").mkdir()
    texts = index_evaluation(folder / "src", data, folder / "work")
    return texts, Searcher(folder / "work", values["ngram"], values["min_overlap"])


def _jsonl(*records: Any) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _found(texts: EvaluationTexts, searcher: Searcher, document: str) -> dict[str, float]:
    hits = searcher.search(word_hashes(document))
    return {texts.texts[hit.text].start: hit.overlap for hit in hits}


def test_un_parquet_se_busca_igual_que_su_jsonl(tmp_path: Path) -> None:
    records = [{"id": n, "q": sentences(4, n), "choices": [_SHORT, _TINY]} for n in range(3)]
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(records), sink)
    content: dict[str, Prose] = {"eval/a.parquet": sink.getvalue()}
    texts, searcher = _searcher(tmp_path / "p", content)
    same, _ = _searcher(tmp_path / "j", {"eval/a.jsonl": _jsonl(*records)})
    assert [(t.source[-2:], t.start) for t in texts.texts] == [
        (t.source[-2:], t.start) for t in same.texts
    ]
    assert len(_found(texts, searcher, f"{sentences(4, 2)} {_SHORT}")) == 2


@pytest.fixture
def two(tmp_path: Path) -> tuple[EvaluationTexts, Searcher]:
    record = {"id": 7, "q": _LONG, "choices": [_SHORT, _TINY], "meta": {"answer": _SHORT}}
    return _searcher(tmp_path, {"eval/a.jsonl": _jsonl(record)})


def test_se_lee_cada_cadena_una_vez_y_las_muy_cortas_no_se_buscan(
    two: tuple[EvaluationTexts, Searcher],
) -> None:
    texts, searcher = two
    assert [text.source for text in texts.texts] == ["eval/a.jsonl:1"] * 2
    assert texts.too_short == 1
    assert len(_TINY.split()) < SHORTEST <= len(_SHORT.split()) < 13
    assert _found(texts, searcher, f"{sentences(9, 4)} {_TINY}. {sentences(9, 5)}") == {}


def test_se_encuentra_dentro_de_otro_texto_y_aunque_cambie_la_ortografia(
    two: tuple[EvaluationTexts, Searcher],
) -> None:
    around = f"{sentences(9, 4)}\n\n«{{}}»\n\n{sentences(9, 5)}"
    for text in (_LONG, _SHORT):
        for written in (text, text.upper(), text.replace("ó", "o").replace(" ", "\n")):
            assert list(_found(*two, around.format(written)).values()) == [1.0]


def test_de_un_texto_largo_basta_la_mitad_y_uno_corto_ha_de_estar_entero(
    two: tuple[EvaluationTexts, Searcher],
) -> None:
    words = _LONG.split()
    grams = len(words) - 12
    for kept in (grams // 2 + 1, grams // 2 - 1):
        overlap = _found(*two, " ".join(words[: kept + 12]))
        assert list(overlap.values()) == ([pytest.approx(kept / grams)] if 2 * kept > grams else [])
    assert _found(*two, _SHORT.rsplit(" ", 1)[0]) == {}


def test_con_overlap_uno_solo_vale_el_texto_entero(tmp_path: Path) -> None:
    texts, searcher = _searcher(tmp_path, {"eval/a.txt": _LONG}, min_overlap=1.0)
    assert _found(texts, searcher, f"Antes. {_LONG} Después.")
    assert not _found(texts, searcher, _LONG.rsplit(" ", 1)[0])


def test_los_parrafos_de_un_txt_son_textos_y_se_lee_comprimido(tmp_path: Path) -> None:
    import gzip

    content = gzip.compress(f"{_LONG}\n\n{sentences(6, 2)}\r\n \n{_SHORT}\n".encode())
    texts, searcher = _searcher(tmp_path, {"eval/a.txt.gz": content})
    assert [text.source for text in texts.texts] == [f"eval/a.txt.gz#{n}" for n in (1, 2, 3)]
    assert len(_found(texts, searcher, f"{sentences(6, 2)} {_SHORT}")) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": "x"}, r"ningún fichero.*data\.contamination\.include"),
        ({"eval/a.pdf": "x"}, r"eval/a\.pdf|data\.contamination\.include"),
        ({"eval/a.jsonl": '{"q": 1}\nno\n'}, r"a\.jsonl:2 no es JSON"),
        ({"eval/a.parquet": "no"}, r"a\.parquet no es un parquet entero"),
        ({"eval/a.txt": b"a\xff"}, "no es UTF-8"),
    ],
)
def test_un_fichero_de_evaluacion_que_no_se_lee_es_un_error(
    tmp_path: Path, files: dict[str, Prose], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _searcher(tmp_path, files)


_EVAL_ES = Path(__file__).parents[3] / "shared" / "data" / "eval_es"


@pytest.mark.skipif(not _EVAL_ES.is_dir(), reason="falta ../shared/data/eval_es")
def test_con_evaluaciones_de_verdad(tmp_path: Path) -> None:
    name = "mlqa_es_dev.jsonl"
    lines = (_EVAL_ES / name).read_text("utf-8").splitlines()[:60]
    texts, searcher = _searcher(tmp_path, {f"eval/{name}": "\n".join(lines)})
    assert len(texts.texts) > 60
    contexts = [json.loads(line)["context"] for line in lines]
    for context in contexts:
        found = _found(texts, searcher, f"{sentences(20, 3)} {context.upper()} {sentences(20, 4)}")
        assert max(found.values()) == 1.0
    assert _found(texts, searcher, sentences(400, 9)) == {}
