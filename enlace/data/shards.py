"""Escritura de shards: ids en crudo cortados cada `shard_tokens`, con su índice al final.

El índice se escribe el último y la carpeta se renombra entera: nada a medias parece acabado. Las
copias de un documento van detrás de toda la parte, vuelta a vuelta: dos seguidas caerían en la
misma ventana y el modelo aprendería a copiar. Se leen de lo ya escrito, sin codificar otra vez.
"""

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from enlace.data.encode import EncodedBatch
from enlace.data.index import (
    BOUNDARY_DTYPE,
    MASK_DTYPE,
    MAX_SHARDS,
    FileRecord,
    ShardIndex,
    ShardRecord,
    SplitRecord,
    read_boundaries,
    read_index,
    verify_shards,
)
from enlace.errors import DataError

__all__ = [
    "ShardIndex",
    "SplitWriter",
    "read_boundaries",
    "read_index",
    "too_many_shards",
    "verify_shards",
]


_COPIED_TOKENS = 1 << 20
_COPIED_DOCUMENTS = 1 << 16


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
        self._copies = array("H")

    def write(self, batch: EncodedBatch) -> None:
        """Añade un lote; las copias que pida esperan a `close`.

        Raises:
            DataError: un id no tiene fila en el modelo, o `shard_tokens` da demasiados ficheros.
        """
        largest = int(batch.ids.max())
        if largest >= self._vocab_size:
            raise DataError(
                f"el tokenizador ha producido el id {largest} y model.vocab_size="
                f"{self._vocab_size}; vuelve a entrenarlo (dvc repro tokenize)"
            )
        self._max_id = max(self._max_id, largest)
        copies = np.ones_like(batch.lengths) if batch.copies is None else batch.copies
        self._copies.frombytes(copies.astype(np.uint16).tobytes())
        self._totals["raw_bytes"] += int((batch.sizes * copies).sum())
        self._append(batch.ids, batch.mask, batch.lengths)

    def close(self) -> SplitRecord:
        """Escribe las copias, cierra los ficheros y devuelve lo que el índice dice de la parte."""
        self._append_copies(np.frombuffer(self._copies, dtype=np.uint16))
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

    def _append(
        self,
        ids: npt.NDArray[np.unsignedinteger],
        mask: npt.NDArray[np.uint8] | None,
        lengths: npt.NDArray[np.int64],
    ) -> None:
        starts = self._totals["tokens"] + np.cumsum(lengths) - lengths
        self._boundaries.write(starts.astype(BOUNDARY_DTYPE))
        self._totals["tokens"] += len(ids)
        self._totals["trained_tokens"] += len(ids) if mask is None else int(mask.sum())
        self._totals["documents"] += len(lengths)
        position = 0
        while position < len(ids):
            position += self._write_piece(ids, mask, position)

    def _append_copies(self, copies: npt.NDArray[np.uint16]) -> None:
        if not len(copies) or copies.max() <= 1:
            return
        self._boundaries.flush()
        stored = np.memmap(self._folder / f"{self._split}.docs.bin", BOUNDARY_DTYPE, "r")
        masked, last = self._mask is not None or self._has_masks(), self._totals["tokens"]
        for turn in range(1, int(copies.max())):
            for first, stop in _runs(copies, turn):
                limits = np.append(stored[first:stop], stored[stop] if stop < len(copies) else last)
                limits = limits.astype(np.int64)
                for start, end in _blocks(limits):
                    pair = int(limits[start]), int(limits[end])
                    self._append(
                        self._read(*pair, masked=False),
                        self._read(*pair, masked=True) if masked else None,
                        np.diff(limits[start : end + 1]),
                    )

    def _has_masks(self) -> bool:
        return bool(self._shards) and self._shards[0].mask is not None

    def _read(self, start: int, stop: int, masked: bool) -> npt.NDArray[Any]:
        """Los tokens (o las máscaras) ya escritos entre dos posiciones de la parte."""
        for file in (self._ids, self._mask):
            if file is not None:
                file.flush()
        dtype = MASK_DTYPE if masked else self._dtype
        pieces = []
        while start < stop:
            number, offset = divmod(start, self._shard_tokens)
            count = min(stop - start, self._shard_tokens - offset)
            path = self._folder / f"{self._name(number)}{'.mask' if masked else ''}.bin"
            pieces.append(np.fromfile(path, dtype, count, offset=offset * dtype.itemsize))
            start += count
        return np.concatenate(pieces)

    def _name(self, number: int) -> str:
        return f"{self._split}-{number:05d}"

    def _write_piece(
        self,
        ids: npt.NDArray[np.unsignedinteger],
        mask: npt.NDArray[np.uint8] | None,
        position: int,
    ) -> int:
        """Escribe desde `position` lo que cabe en el shard abierto; devuelve cuántos tokens."""
        self._dtype = ids.dtype.newbyteorder("<")
        if self._ids is None:
            if len(self._shards) == MAX_SHARDS:
                raise too_many_shards(self._shard_tokens, self._shard_tokens * MAX_SHARDS + 1)
            name = self._name(len(self._shards))
            self._ids = _HashedFile(self._folder / f"{name}.bin")
            if mask is not None:
                self._mask = _HashedFile(self._folder / f"{name}.mask.bin")
        room = self._shard_tokens - self._ids.items
        piece = ids[position : position + room]
        self._ids.write(piece.astype(self._dtype, copy=False))
        if self._mask is not None and mask is not None:
            self._mask.write(mask[position : position + room])
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


def too_many_shards(shard_tokens: int, tokens: int) -> DataError:
    """El error de un `data.shard_tokens` con el que `tokens` tokens darían demasiados ficheros."""
    return DataError(
        f"data.shard_tokens={shard_tokens} partiría unos {tokens} tokens en más de {MAX_SHARDS} "
        f"ficheros; pon al menos {-(-tokens // MAX_SHARDS)}"
    )


def _runs(copies: npt.NDArray[np.uint16], turn: int) -> Iterator[tuple[int, int]]:
    """Los tramos [primero, último) de documentos seguidos con más de `turn` copias."""
    for base in range(0, len(copies), _COPIED_DOCUMENTS):
        wanted = copies[base : base + _COPIED_DOCUMENTS] > turn
        edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False)) + base
        yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _blocks(limits: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Trozos [primero, último] de `limits` de un millón de tokens como mucho, o un documento."""
    start = 0
    while start < len(limits) - 1:
        reach = int(np.searchsorted(limits, limits[start] + _COPIED_TOKENS, side="right")) - 1
        end = max(start + 1, reach)
        yield start, end
        start = end


class _HashedFile:
    """Un fichero que se resume mientras se escribe: no hace falta releerlo."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: BinaryIO = path.open("wb")
        self._digest = hashlib.sha256()
        self.items = 0

    def write(self, values: npt.NDArray[Any]) -> None:
        content = np.ascontiguousarray(values).data
        self._stream.write(content)
        self._digest.update(content)
        self.items += len(values)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> FileRecord:
        self._stream.close()
        return FileRecord(file=self._path.name, sha256=self._digest.hexdigest())
