"""Documentos con peso: sus copias van detrás de la parte y salen de lo ya escrito."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from enlace.data.corpus import CorpusDocument, read_corpus
from enlace.data.sharding import build_shards
from enlace.data.shards import read_boundaries, read_index, verify_shards
from tests.data.builders import Prepared, bpe, conversations, folder_bytes, prepare, stories


def _repeated(
    prepared: Prepared, folder: Path, copies: dict[int, int]
) -> tuple[Path, list[CorpusDocument]]:
    """Otro corpus: cada documento de train con sus copias (1 si no se dice) y el mismo val."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for name, content in folder_bytes(prepared.corpus).items():
        (corpus / name).write_bytes(content)
    documents = list(read_corpus(prepared.corpus, "train"))
    lines = []
    for number, document in enumerate(documents):
        record: dict[str, Any] = {
            "id": document.id,
            "text": document.text,
            "source": document.source,
        }
        if document.turns:
            record["turns"] = [turn._asdict() for turn in document.turns]
        lines.append(json.dumps(record | {"copies": copies.get(number, 1)}) + "\n")
    packed = zstandard.ZstdCompressor().compress("".join(lines).encode())
    (corpus / "train.jsonl.zst").write_bytes(packed)
    return corpus, documents


@pytest.mark.parametrize("block", [1, 150, 1 << 20])
@pytest.mark.parametrize("chat", [False, True])
def test_las_copias_van_detras_por_vueltas_y_no_se_codifican_otra_vez(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, chat: bool
) -> None:
    files: dict[str, Any] = {"c.jsonl": conversations(24)} if chat else dict(stories(48))
    changes = {"data.format": "chat", "data.include": ["*.jsonl"]} if chat else {}
    prepared = prepare(tmp_path, files, bpe(400, **{"data.shard_tokens": 300}) | changes)
    copies = {0: 3, 1: 2, 4: 3, 5: 3, 6: 2, 9: 2}
    (tmp_path / "otro").mkdir()
    corpus, documents = _repeated(prepared, tmp_path / "otro", copies)
    monkeypatch.setattr("enlace.data.shards._COPIED_TOKENS", block)
    monkeypatch.setattr("enlace.data.shards._COPIED_DOCUMENTS", 5)
    build_shards(corpus, prepared.tokenizer, tmp_path / "s", prepared.config.data, 400)
    index = verify_shards(tmp_path / "s")
    order = list(range(len(documents)))
    for turn in (1, 2):
        order += [n for n in range(len(documents)) if copies.get(n, 1) > turn]
    once = read_index(prepared.shards).split("train")
    starts = read_boundaries(prepared.shards, once).tolist()
    for name in ("bin", "mask.bin") if chat else ("bin",):
        pattern = f"train-?????.{name}"
        dtype = "u1" if "mask" in name else "<u2"
        before, after = (
            np.concatenate([np.fromfile(file, dtype) for file in sorted(folder.glob(pattern))])
            for folder in (prepared.shards, tmp_path / "s")
        )
        expected = np.concatenate([before[starts[n] : starts[n + 1]] for n in order])
        assert after.tolist() == expected.tolist()
    split = index.split("train")
    lengths = [starts[n + 1] - starts[n] for n in order]
    assert np.diff(read_boundaries(tmp_path / "s", split)).tolist() == lengths
    assert split.documents == len(order)
    if not chat:
        assert split.raw_bytes == sum(len(documents[n].text.encode()) for n in order)
    assert index.split("val") == read_index(prepared.shards).split("val")
