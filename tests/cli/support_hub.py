"""Un conjunto de Hugging Face en una carpeta: su README con configuraciones, parquet y jsonl."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from enlace.config.schema import DataConfig
from enlace.workspace.download import download_all
from tests.support import make_config

PART = 1500
"""Bytes de texto por parte: pocos, para que haya varias."""

_CARD = """\
---
license: odc-by
configs:
- config_name: spa_Latn
  data_files:
  - split: train
    path: data/spa_Latn/train/*
  - split: test
    path: data/spa_Latn/test/*
  - split: wide
    path: data/spa_Latn/wide/*
- config_name: spa_Lines
  data_files:
  - split: train
    path: data/lines/*
---
Un conjunto inventado para las pruebas.
"""


def text(number: int) -> str:
    """El texto de la fila `number`; la octava de cada diez no tiene."""
    return "" if number % 10 == 7 else f"Fila {number}: la cigüeña dijo «¡qué más da!» " * 3


def write_hub(folder: Path, rows: int = 90) -> Path:
    """Escribe el conjunto: tres parquet de grupos pequeños y dos jsonl.gz con las mismas filas."""
    (folder / "data/spa_Latn/train").mkdir(parents=True)
    (folder / "data/spa_Latn/test").mkdir()
    (folder / "data/spa_Latn/wide").mkdir()
    (folder / "data/lines").mkdir()
    (folder / "README.md").write_text(_CARD, encoding="utf-8")
    for part in range(3):
        numbers = range(part * rows // 3, (part + 1) * rows // 3)
        _parquet(folder / f"data/spa_Latn/train/00{part}_00000.parquet", list(numbers))
    _parquet(folder / "data/spa_Latn/test/000_00000.parquet", [1, 2])
    _wide(folder / "data/spa_Latn/wide/000_00000.parquet")
    for part in range(2):
        numbers = range(part * rows // 2, (part + 1) * rows // 2)
        lines = [json.dumps({"text": text(n) or None, "n": n}) + "\n" for n in numbers]
        content = gzip.compress("".join(lines).encode(), mtime=0)
        (folder / f"data/lines/{part}.jsonl.gz").write_bytes(content)
    return folder


def _parquet(path: Path, numbers: list[int]) -> None:
    table = pa.table(
        {
            "text": [text(n) or None for n in numbers],
            "url": [f"https://ejemplo.invalid/{n}" for n in numbers],
            "turns": [[{"role": "user", "content": text(n)}] for n in numbers],
        }
    )
    pq.write_table(table, path, row_group_size=7)


def with_downloads(*downloads: dict[str, Any], **changes: Any) -> DataConfig:
    """La configuración de datos con esas descargas; cada una solo dice lo que cambia."""
    base = {
        "name": "web",
        "subset": "spa_Latn",
        "split": "train",
        "revision": "v1",
        "text_column": "text",
        "license": "ODC-By-1.0",
        "max_megabytes": 1.0,
    }
    entries = [base | download for download in downloads]
    return make_config({"data.downloads": entries} | changes).data


def bring(data: DataConfig, report: Callable[[str], None] = lambda _: None) -> Path:
    """Descarga el único conjunto que se pide, por partes de `PART`, y dice dónde ha quedado."""
    (done,) = download_all(data, Path(), report, PART)
    return done.folder


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Lo que hay en una carpeta sin subcarpetas, por nombre."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _wide(path: Path) -> None:
    """Poco texto entre columnas que abultan: cinco grupos de filas."""
    rng = random.Random(1)
    bulk = [rng.randbytes(20_000) for _ in range(20)]
    table = pa.table({"before": bulk, "text": [text(n) for n in range(20)], "after": bulk})
    pq.write_table(table, path, row_group_size=4, compression="none", use_dictionary=False)
