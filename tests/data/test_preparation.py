"""La etapa del corpus: los mismos bytes siempre, nada a medias y un error por cada mal corpus."""

import gzip
import json
import os
import random
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enlace.config.views import View, declared_params
from enlace.data.corpus import read_corpus
from enlace.data.preparation import build
from enlace.data.preparation.batches import batches_of_records
from enlace.data.preparation.build import build_corpus
from enlace.data.readers import RawRecord
from enlace.errors import DataError
from tests.data.builders import Prose, folder_bytes, sentences, stories, write_tree
from tests.support import make_config

_CHANGES = {
    "data.include": ["**/*"],
    "data.dedup.near": True,
    "data.rules.length.min_chars": 20,
    "data.genre_column": "genre",
}


def _build(source: Path, out: Path, **changes: Any) -> dict[str, Any]:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    data = make_config(_CHANGES | dotted).data
    return build_corpus(source, out, data, Console(file=StringIO()), bytes_per_worker=1)


def _records(count: int, seed: int) -> str:
    rows = [
        {"text": sentences(12, seed + n), "genre": ("cuento", "carta")[n % 2]} for n in range(count)
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _messy() -> dict[str, Prose]:
    """Un poco de todo: dos formatos, repetidos, casi repetidos, vacíos y textos de evaluación."""
    files = stories(30) | {"web/a.jsonl": _records(20, 500), "web/b.jsonl": _records(20, 600)}
    files |= {f"wiki/copia_{n}.txt": files[f"cuento_{n:03d}.txt"] for n in range(4)}
    files |= {f"wiki/casi_{n}.txt": f"{sentences(12, n)} Fin." for n in range(4, 8)}
    files |= {"corto.txt": "hola", "vacio.txt": "", "foto.pdf": "x"}
    return files | {"eval/preguntas.jsonl": json.dumps({"q": sentences(4, 505)}) + "\n"}


_SOURCES = [
    {"name": "wiki", "include": ["wiki/*"], "weight": 2.5, "license": "CC"},
    {"name": "web", "include": ["web/*"], "weight": 0.5, "license": "libre"},
]
_EVERYTHING = {
    "data__sources": _SOURCES,
    "data__contamination__action": "remove",
    "data__contamination__include": ["eval/*"],
}


def test_los_mismos_bytes_con_otros_procesos_otro_listado_y_otra_carpeta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "uno", _messy())
    write_tree(tmp_path / "otra/carpeta", dict(reversed(_messy().items())))
    _build(tmp_path / "uno", tmp_path / "a", data__workers=1, **_EVERYTHING)
    _build(tmp_path / "uno", tmp_path / "b", data__workers=2, **_EVERYTHING)

    walk = os.walk

    def shuffled(top: Any, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, files in walk(top, **options):
            random.Random(3).shuffle(folders)
            random.Random(3).shuffle(files)
            yield folder, folders, files

    monkeypatch.setattr(os, "walk", shuffled)
    _build(tmp_path / "otra/carpeta", tmp_path / "c", data__workers=1, **_EVERYTHING)
    contents = folder_bytes(tmp_path / "a")
    assert sorted(contents) == ["report.json", "train.jsonl.zst", "val.jsonl.zst"]
    assert contents == folder_bytes(tmp_path / "b") == folder_bytes(tmp_path / "c")


def test_las_cuentas_del_informe_cuadran(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", _messy())
    report = _build(tmp_path / "src", tmp_path / "corpus", **_EVERYTHING)
    documents = {split: list(read_corpus(tmp_path / "corpus", split)) for split in ("train", "val")}
    kept = sum(len(each) for each in documents.values())
    dropped = {name: tally["documents"] for name, tally in report["dropped"].items()}
    assert dropped["duplicate"] == dropped["near_duplicate"] == 4
    assert dropped["contamination"] == 1
    assert dropped["weight"] > 0
    late = ("duplicate", "near_duplicate", "contamination", "weight", "length")
    assert report["read"]["documents"] == kept + sum(dropped[name] for name in late)
    for split, each in documents.items():
        assert report["splits"][split]["epoch_documents"] == sum(d.copies for d in each)
    for table in ("sources", "genres"):
        rows = report[table].values()
        assert sum(row["kept"]["documents"] for row in rows) == kept
        assert sum(row["read"]["documents"] for row in rows) == report["read"]["documents"]
    assert sum(row["documents"] for row in report["licenses"].values()) == kept
    assert sum(row["documents"] for row in report["lengths"]) == kept
    examples = report["dropped"]["near_duplicate"]["examples"]
    assert len(examples) == 3
    assert examples[0].startswith("cuento_004.txt: se parece a wiki/casi_4.txt (")
    assert report["duplicates"]["clusters"] == 4


def test_de_las_copias_se_queda_la_de_la_primera_fuente(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", _messy())
    _build(tmp_path / "src", tmp_path / "corpus", **_EVERYTHING)
    kept = {d.source for s in ("train", "val") for d in read_corpus(tmp_path / "corpus", s)}
    for number in range(4):
        assert f"wiki/copia_{number}.txt" in kept
        assert f"cuento_{number:03d}.txt" not in kept


def test_el_peso_repite_en_entrenamiento_y_elige_siempre_los_mismos(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", {f"wiki/{k}": v for k, v in stories(60).items()} | stories(60, 1))

    def chosen(weight: float) -> dict[str, int]:
        source = {"name": "wiki", "include": ["wiki/*"], "weight": weight, "license": "CC"}
        _build(tmp_path / "src", tmp_path / "corpus", data__sources=[source])
        found = {}
        for split in ("train", "val"):
            for document in read_corpus(tmp_path / "corpus", split):
                assert split == "train" or document.copies == 1
                if document.origin == "wiki":
                    found[document.id] = document.copies
        return found

    low, high, whole, more = (chosen(weight) for weight in (0.3, 0.6, 1.0, 2.3))
    assert set(low) < set(high) < set(whole) == set(more)
    assert set(whole.values()) == {1}
    assert set(more.values()) == {1, 2, 3}
    assert 8 < len(low) < 28


def test_ni_con_near_apagado_se_separan_los_parecidos(tmp_path: Path) -> None:
    files = stories(40)
    files |= {f"z/{name}": f"{text!s} Y nada más." for name, text in files.items()}
    write_tree(tmp_path / "src", files)
    report = _build(tmp_path / "src", tmp_path / "corpus", data__dedup__near=False)
    side = {d.source: s for s in ("train", "val") for d in read_corpus(tmp_path / "corpus", s)}
    assert len(side) == 80
    assert all(side[name] == side[f"z/{name}"] for name in stories(40))
    assert report["duplicates"]["unsplit"] == 80
    assert any("data.dedup.near: false" in warning for warning in report["warnings"])


_FOREIGN = "The old woman looked at the river and said nothing about the rain that had come.\n\n"


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        ({"a.txt": "", "b.txt": " \n"}, {}, r"no queda ningún documento.*empty 2.*ficheros sin texto"),
        ({"a.txt": "poco", "b.txt": "nada"}, {}, r"length 2.*data\.rules\.length"),
        ({"a.txt": b"\xff\xfe\xfa" * 9}, {"data__on_bad_bytes": "skip"}, r"bad_bytes 1.*UTF-8"),
        (
            {f"{n}.txt": sentences(9, 1) for n in range(9)},
            {},
            r"queda vacía: 1 documento \(8 eran repetidos",
        ),
        (
            {f"{n}.txt": _FOREIGN * (n + 1) for n in range(3)},
            {"data__rules__language__enabled": True},
            r"language 3.*data\.rules\.language\.keep",
        ),
        (
            {f"{n}.txt": f"{sentences(30, 1)} Caso {n}." for n in range(9)},
            {"data__dedup__near": False, "data__dedup__contained": False},
            r"9 documentos que quedan forman 1 familia de textos parecidos.*split_threshold",
        ),
        (
            {"a.txt": sentences(4, 1), "eval/p.txt": sentences(4, 1)},
            {k: v for k, v in _EVERYTHING.items() if "contamination" in k},
            r"contamination 1.*data\.contamination",
        ),
        (
            stories(9),
            {"data__contamination__action": "report", "data__contamination__include": ["no/*"]},
            r"ningún fichero.*data\.contamination\.include",
        ),
    ],
    ids=[
        "vacio",
        "corto",
        "ilegible",
        "repetido",
        "ajeno",
        "plantilla",
        "contaminado",
        "sin-evaluacion",
    ],
)
def test_un_corpus_que_no_sirve_es_un_error_y_no_deja_nada(
    tmp_path: Path, files: dict[str, Prose], changes: dict[str, Any], message: str
) -> None:
    write_tree(tmp_path / "src", files)
    with pytest.raises(DataError, match=message) as caught:
        _build(tmp_path / "src", tmp_path / "out/corpus", **changes)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_sin_sitio_en_el_disco_no_se_empieza(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "src", stories(40))
    full = type("Usage", (), {"free": 100})
    monkeypatch.setattr("enlace.data.preparation.build.shutil.disk_usage", lambda _: full)
    with pytest.raises(
        DataError, match=r"hacen falta unos .*KiB.*100.bytes libres; libera espacio"
    ):
        _build(tmp_path / "src", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_los_restos_de_un_corte_se_borran_y_los_ajenos_no(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", stories(40))
    write_tree(tmp_path / "data", {".tmp-0123456789ab-corpus/texts.jsonl.zst": "x"})
    write_tree(tmp_path / "data", {".tmp-0123456789ab-shards/train.bin": "x"})
    _build(tmp_path / "src", tmp_path / "data/corpus")
    left = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert left == [".tmp-0123456789ab-shards", "corpus"]


def test_los_lotes_solo_dependen_de_los_registros() -> None:
    records = [RawRecord("text", b"x" * size, str(size), 0) for size in (1 << 18, 1 << 18, 5, 9)]
    sizes = [
        [r.source for r in batch if isinstance(r, RawRecord)]
        for batch in batches_of_records(records)
    ]
    assert sizes == [["262144", "262144"], ["5", "9"]]


def test_con_lo_que_la_etapa_declara_basta_y_viaja_a_los_procesos(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", _messy())
    dotted = {key.replace("__", "."): value for key, value in _EVERYTHING.items()}
    config = make_config(_CHANGES | dotted | {"data.workers": 2})
    declared = declared_params("corpus", Path(__file__).parents[2])
    view = View(config, declared, "corpus", "").data
    assert view == View(config, declared, "corpus", "").data
    assert hash(view) == hash(View(config, declared, "corpus", "").data)
    console = Console(file=StringIO())
    build_corpus(tmp_path / "src", tmp_path / "a", view, console, bytes_per_worker=1)
    build_corpus(tmp_path / "src", tmp_path / "b", config.data, console)
    assert folder_bytes(tmp_path / "a") == folder_bytes(tmp_path / "b")


@pytest.mark.parametrize("name", ["zz.txt.gz", "zz.parquet"])
def test_un_fichero_cortado_se_dice_antes_de_limpiar_nada(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Va el último en el orden de lectura: sin mirarlo antes, se descubriría al final."""
    source = write_tree(tmp_path / "raw", stories(4))
    (source / name).write_bytes(gzip.compress(random.Random(0).randbytes(5000))[:-4])
    monkeypatch.setattr(build, "iterate_records", _never)
    with pytest.raises(DataError, match=name):
        _build(source, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def _never(*_: object) -> None:
    pytest.fail("se ha empezado a leer")
