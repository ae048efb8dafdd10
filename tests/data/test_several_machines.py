"""El ejemplo de docs/examples: dos máquinas con datatrove dan los documentos de una."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from enlace.data.corpus import read_corpus
from enlace.data.documents import Document
from enlace.data.preparation.build import build_corpus
from enlace.data.readers import RawRecord, iterate_records, parse_record
from enlace.data.readers.blocks import read_lines
from enlace.data.rules.table import RuleTable
from tests.data.builders import Prose, sentences, stories, write_tree
from tests.support import make_config

_EXAMPLE = Path(__file__).parents[2] / "docs/examples/several_machines.py"
_RULES = ("html", "line_ends", "control", "invisible", "nfc", "whitespace")
_CHANGES: dict[str, Any] = {f"data.rules.{name}": True for name in _RULES} | {
    "data.include": ["**/*"],
    "data.genre_column": "genre",
    "data.rules.length.enabled": True,
    "data.rules.length.min_chars": 40,
    "data.val_fraction": 0.2,
}


@pytest.fixture(scope="module")
def example() -> Any:
    pytest.importorskip("datatrove")
    spec = importlib.util.spec_from_file_location("several_machines", _EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sources() -> dict[str, Prose]:
    """Ficheros sueltos y un jsonl, con espacios de más, etiquetas, cortos y repetidos."""
    dirty = [f"  {sentences(3, n)}\r\n\r\n\r\n<b>{sentences(1, n)}</b> \u200b" for n in range(20)]
    records = [{"text": text, "genre": "cuento"} for text in [*dirty, dirty[0], "corto", ""]]
    lines = "\n".join(json.dumps(record) for record in records)
    return stories(15, 3) | {"más/registros.jsonl": lines}


def test_dos_maquinas_dan_los_documentos_de_una(example: Any, tmp_path: Path) -> None:
    config = make_config(_CHANGES)
    source = write_tree(tmp_path / "fuente", _sources())
    for machine in range(2):
        example.clean_share(source, tmp_path / "limpio", config.data, machine, 2)
    parts = sorted((tmp_path / "limpio").glob("*.jsonl.gz"))
    assert len(parts) == 2
    found = [[json.loads(line) for _, _, line in read_lines(part)] for part in parts]
    assert all(len(part) > 10 for part in found)

    table = RuleTable(config.data)
    expected = []
    for record in iterate_records(source, config.data):
        for document in parse_record(record, config.data) if isinstance(record, RawRecord) else []:
            if isinstance(document, Document) and (kept := table.clean(document).document):
                genre = {"genre": kept.genre} if kept.genre else {}
                expected.append({"text": kept.text} | genre)
    assert sorted(map(str, [*found[0], *found[1]])) == sorted(map(str, expected))

    # Y la etapa corpus, con lo limpio delante, deja lo mismo que con lo sucio.
    for name, folder in (("directo", source), ("por partes", tmp_path / "limpio")):
        build_corpus(folder, tmp_path / name, config.data)
    for split in ("train", "val"):
        direct, split_up = (
            {(d.id, d.text, d.genre) for d in read_corpus(tmp_path / name, split)}
            for name in ("directo", "por partes")
        )
        assert direct == split_up
        assert direct
