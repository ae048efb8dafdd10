"""La muestra: presupuesto, cuotas por grupo y repetible."""

import json
from pathlib import Path

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from enlace.data.corpus import corpus_file, read_corpus
from enlace.data.sampling import fair_quotas, sample_texts
from tests.data.builders import sentences


def _corpus(folder: Path, documents: int, groups: tuple[tuple[str, str, int], ...]) -> Path:
    """Un corpus ya limpio con `documents` textos, uno de cada grupo según su proporción."""
    folder.mkdir()
    turns = [(origin, genre) for origin, genre, times in groups for _ in range(times)]
    sizes = {}
    for split, count in (("train", documents), ("val", 4)):
        size = 0
        with zstandard.open(corpus_file(folder, split), "wt", encoding="utf-8") as stream:
            for number in range(count):
                origin, genre = turns[number % len(turns)]
                text = sentences(6, number)
                size += len(text.encode())
                identifier = f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}"
                record = {"id": identifier, "text": text, "source": f"{number}.txt"}
                stream.write(json.dumps(record | {"origin": origin, "genre": genre}) + "\n")
        sizes[split] = {"documents": count, "bytes": size, "epoch_bytes": size}
    (folder / "report.json").write_text(json.dumps({"splits": sizes}), encoding="utf-8")
    return folder


_ONE = (("general", "", 1),)


def test_la_muestra_respeta_el_presupuesto_y_no_mira_la_validacion(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "c", 40, _ONE)
    train = {document.text for document in read_corpus(corpus, "train")}
    total = sum(len(text.encode()) for text in train)
    assert {each.text for each in sample_texts(corpus, "train", total)} == train
    for budget in (1, 777, total // 2, total - 1):
        sample = [each.text for each in sample_texts(corpus, "train", budget)]
        size = sum(len(text.encode()) for text in sample)
        assert budget - 3 <= size <= budget  # el corte pierde, como mucho, parte de un carácter
        assert all(any(text.startswith(piece) for text in train) for piece in sample)


def test_al_crecer_el_presupuesto_la_muestra_solo_gana_textos(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "c", 40, _ONE)
    train = {document.text for document in read_corpus(corpus, "train")}
    small = {each.text for each in sample_texts(corpus, "train", 3000)} & train
    large = {each.text for each in sample_texts(corpus, "train", 9000)} & train
    assert small
    assert small < large


def test_una_fuente_enorme_no_tapa_a_las_demas(tmp_path: Path) -> None:
    groups = (("web", "", 30), ("libros", "novela", 6), ("libros", "recetas", 1))
    corpus = _corpus(tmp_path / "c", 74, groups)
    sizes: dict[tuple[str, str], int] = {}
    for document in read_corpus(corpus, "train"):
        group = (document.origin, document.genre)
        sizes[group] = sizes.get(group, 0) + len(document.text.encode())
    budget = sum(sizes.values()) // 3
    taken = dict.fromkeys(sizes, 0)
    for text, group in sample_texts(corpus, "train", budget):
        taken[group] += len(text.encode())
    assert taken["libros", "recetas"] == sizes["libros", "recetas"]
    assert taken["web", ""] < 0.7 * budget
    assert budget - 3 * len(sizes) <= sum(taken.values()) <= budget


@given(
    sizes=st.dictionaries(st.integers(0, 9), st.integers(0, 1000), min_size=1),
    budget=st.integers(0, 4000),
)
def test_las_cuotas_gastan_todo_y_nadie_recibe_menos_que_otro_sin_caber(
    sizes: dict[int, int], budget: int
) -> None:
    groups = {(str(name), ""): size for name, size in sizes.items()}
    quotas = fair_quotas(groups, budget)
    assert sum(quotas.values()) == min(budget, sum(groups.values()))
    assert all(quotas[group] <= groups[group] for group in groups)
    cut = [quotas[group] for group in groups if quotas[group] < groups[group]]
    assert not cut or max(quotas.values()) <= min(cut) + 1
