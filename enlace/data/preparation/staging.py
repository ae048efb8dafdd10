"""Lo que la preparación deja en disco entre sus dos pasadas: textos, ids, firmas y claves.

En memoria no hay nada que crezca con el corpus: las tablas se añaden a ficheros y se leen después
con `memmap`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self, cast

import numpy as np
import numpy.typing as npt
import zstandard

from enlace.config.corpus import DedupConfig
from enlace.data.duplicates.passages import Passages
from enlace.data.duplicates.resolve import Fingerprints
from enlace.data.preparation.batches import Batch
from enlace.data.preparation.tallies import MAX_LABELS, OTHERS
from enlace.data.readers.blocks import read_lines

_ZSTD_LEVEL = 1
_COLUMNS: dict[str, Any] = {
    "ids": np.dtype((np.uint64, 2)),
    "sizes": np.uint64,
    "characters": np.uint64,
    "ranks": np.uint16,
    "origins": np.uint16,
    "genres": np.uint16,
    "licenses": np.uint16,
    "passage_counts": np.uint32,
}
_TABLES = ("signatures", "passages")


class Labels:
    """Nombres y su número, en el orden en que aparecen; a partir de un tope, todos «(otros)»."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """El número de `name`."""
        if name not in self._numbers and len(self.names) >= MAX_LABELS:
            name = OTHERS
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


class Staging:
    """Los documentos limpios de la primera pasada, en una carpeta de trabajo."""

    def __init__(self, folder: Path, config: DedupConfig) -> None:
        self.count = 0
        self.origins, self.genres, self.licenses = Labels(), Labels(), Labels()
        self._folder = folder
        self._config = config
        self._texts = folder / "texts.jsonl.zst"
        self._open = ExitStack()

    def __enter__(self) -> Self:
        names = [*_COLUMNS, *_TABLES, *(f"keys-{band}" for band in range(self._config.bands))]
        self._files: dict[str, IO[bytes]] = {
            name: self._open.enter_context(self._path(name).open("wb")) for name in names
        }
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        raw = self._open.enter_context(self._texts.open("wb"))
        self._stream = self._open.enter_context(compressor.stream_writer(raw, closefd=False))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def append(self, batch: Batch) -> None:
        """Guarda un lote detrás de los anteriores."""
        self.count += len(batch.ids)
        self._stream.write(batch.lines)
        labels = {
            "origins": [self.origins.number(origin) for origin, _, _ in batch.labels],
            "genres": [self.genres.number(genre) for _, genre, _ in batch.labels],
            "licenses": [self.licenses.number(license_) for _, _, license_ in batch.labels],
        }
        for name in ("ids", "sizes", "characters", "ranks"):
            self._files[name].write(getattr(batch, name).tobytes())
        for name, numbers in labels.items():
            self._files[name].write(np.array(numbers, np.uint16).tobytes())
        self._files["signatures"].write(batch.signed.signatures.tobytes())
        self._files["passages"].write(batch.signed.passages.values.tobytes())
        self._files["passage_counts"].write(batch.signed.passages.counts.tobytes())
        for band, keys in enumerate(batch.signed.keys):
            self._files[f"keys-{band}"].write(keys.tobytes())

    def column(self, name: str) -> npt.NDArray[Any]:
        """Una columna entera (N,) de los documentos guardados: `ids`, `sizes`, `origins`."""
        return self._read(name, _COLUMNS[name])

    def fingerprints(self) -> Fingerprints:
        """Lo que hace falta para buscar repetidos, con las firmas sin traer a memoria."""
        width = self._config.bands * self._config.rows
        signatures = self._map("signatures", np.uint32).reshape(self.count, width)
        return Fingerprints(
            self.column("ids"),
            self.column("ranks"),
            self.column("sizes"),
            signatures,
            lambda band: self._read(f"keys-{band}", np.uint64),
            Passages(self._map("passages", np.uint64), self.column("passage_counts")),
        )

    def lines(self) -> Iterator[bytes]:
        """Las líneas guardadas, sin su llave final, en su orden."""
        for _, _, line in read_lines(self._texts):
            yield line

    def _read(self, name: str, dtype: Any) -> npt.NDArray[Any]:
        return cast(npt.NDArray[Any], np.fromfile(self._path(name), dtype=dtype))

    def _map(self, name: str, dtype: Any) -> npt.NDArray[Any]:
        """La tabla, sin traerla a memoria; una vacía no se puede proyectar."""
        path = self._path(name)
        return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)

    def _path(self, name: str) -> Path:
        suffix = "" if "." in name else ".bin"
        return self._folder / f"{name}{suffix}"
