"""Escritura de shards: ids en crudo cortados cada `shard_tokens`, con su índice al final.

El índice se escribe el último y la carpeta se renombra entera: nada a medias parece acabado.
"""

import hashlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from enlace.data.encode import EncodedBatch
from enlace.data.index import (
    BOUNDARY_DTYPE,
    FileRecord,
    ShardIndex,
    ShardRecord,
    SplitRecord,
    read_boundaries,
    read_index,
    verify_shards,
)
from enlace.errors import DataError

__all__ = ["ShardIndex", "SplitWriter", "read_boundaries", "read_index", "verify_shards"]


class SplitWriter:
    """Escribe una parte: corta en ficheros de `shard_tokens` tokens sin perder ninguno."""

    def __init__(self, folder: Path, split: str, shard_tokens: int, vocab_size: int) -> None:
        self._folder = folder
        self._split = split
        self._shard_tokens = shard_tokens
        self._vocab_size = vocab_size
        self._shards: list[ShardRecord] = []
        self._ids: _HashedFile | None = None
        self._mask: _HashedFile | None = None
        self._boundaries = _HashedFile(folder / f"{split}.docs.bin")
        self._totals = {"tokens": 0, "trained_tokens": 0, "documents": 0, "raw_bytes": 0}
        self._max_id = 0

    def write(self, batch: EncodedBatch) -> None:
        """Añade un lote.

        Raises:
            DataError: un id no tiene fila en el modelo.
        """
        largest = int(batch.ids.max())
        if largest >= self._vocab_size:
            raise DataError(
                f"el tokenizador ha producido el id {largest} y model.vocab_size="
                f"{self._vocab_size}; vuelve a entrenarlo (dvc repro tokenize)"
            )
        self._max_id = max(self._max_id, largest)
        start = self._totals["tokens"]
        starts = start + np.cumsum(batch.lengths) - batch.lengths
        self._boundaries.write(starts.astype(BOUNDARY_DTYPE))
        learned = len(batch.ids) if batch.mask is None else int(batch.mask.sum())
        self._totals["tokens"] += len(batch.ids)
        self._totals["trained_tokens"] += learned
        self._totals["documents"] += len(batch.lengths)
        self._totals["raw_bytes"] += batch.raw_bytes
        position = 0
        while position < len(batch.ids):
            position += self._write_piece(batch, position)

    def close(self) -> SplitRecord:
        """Cierra los ficheros y devuelve lo que el índice dice de la parte."""
        self._close_shard()
        total = np.array([self._totals["tokens"]], dtype=BOUNDARY_DTYPE)
        self._boundaries.write(total)
        return SplitRecord(
            **self._totals,
            max_id=self._max_id,
            shards=self._shards,
            boundaries=self._boundaries.close(),
        )

    def abort(self) -> None:
        """Cierra los ficheros de un trabajo que ha fallado."""
        for file in (self._ids, self._mask, self._boundaries):
            if file is not None:
                file.close()

    def _write_piece(self, batch: EncodedBatch, position: int) -> int:
        """Escribe desde `position` lo que cabe en el shard abierto; devuelve cuántos tokens."""
        if self._ids is None:
            name = f"{self._split}-{len(self._shards):05d}"
            self._ids = _HashedFile(self._folder / f"{name}.bin")
            if batch.mask is not None:
                self._mask = _HashedFile(self._folder / f"{name}.mask.bin")
        room = self._shard_tokens - self._ids.items
        piece = batch.ids[position : position + room]
        self._ids.write(piece.astype(piece.dtype.newbyteorder("<")))
        if self._mask is not None and batch.mask is not None:
            self._mask.write(batch.mask[position : position + room])
        if self._ids.items == self._shard_tokens:
            self._close_shard()
        return len(piece)

    def _close_shard(self) -> None:
        if self._ids is None:
            return
        ids = self._ids.close()
        mask = self._mask.close() if self._mask is not None else None
        record = ShardRecord(file=ids.file, sha256=ids.sha256, tokens=self._ids.items, mask=mask)
        self._shards.append(record)
        self._ids = self._mask = None


class _HashedFile:
    """Un fichero que se resume mientras se escribe: no hace falta releerlo."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: BinaryIO = path.open("wb")
        self._digest = hashlib.sha256()
        self.items = 0

    def write(self, values: npt.NDArray[Any]) -> None:
        content = values.tobytes()
        self._stream.write(content)
        self._digest.update(content)
        self.items += len(values)

    def close(self) -> FileRecord:
        self._stream.close()
        return FileRecord(file=self._path.name, sha256=self._digest.hexdigest())
