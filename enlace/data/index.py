"""El índice de los shards: su esquema, su lectura comprobada y la verificación por SHA-256.

Una carpeta de shards tiene `index.json` y, por parte (`train`, `val`), ficheros `train-00000.bin`
de ids en crudo (little-endian; uint8 para bytes, uint16 para BPE), quizá su máscara
`train-00000.mask.bin` (uint8, 1 = se aprende a predecir ese token) y `train.docs.bin` (uint64: el
primer token de cada documento y, al final, el total). Cada documento acaba en el id `eos_id`.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enlace.config.documents import SEPARATOR_ID
from enlace.errors import DataError
from enlace.files import sha256_json

INDEX_FILE = "index.json"
INDEX_VERSION = 1
MAX_SHARDS = 10_000
"""Ficheros por parte: más, y listarlos y abrirlos cuesta más que leerlos."""
BOUNDARY_DTYPE = np.dtype("<u8")
MASK_DTYPE = np.dtype("u1")
_READ_BLOCK = 1 << 20
_SHARD_NAME = r"^[a-z]+-\d{5}(\.mask)?\.bin$"
_BOUNDARIES_NAME = r"^[a-z]+\.docs\.bin$"
_SHA256 = r"^[0-9a-f]{64}$"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FileRecord(_Strict):
    """Un fichero de la carpeta y su SHA-256. El nombre no puede salir de ella."""

    file: str = Field(pattern=f"{_SHARD_NAME}|{_BOUNDARIES_NAME}")
    sha256: str = Field(pattern=_SHA256)


class ShardRecord(FileRecord):
    """Un shard: cuántos tokens guarda y, en conversaciones, su máscara."""

    tokens: int = Field(gt=0)
    mask: FileRecord | None = None


class SplitRecord(_Strict):
    """Una parte del corpus.

    `raw_bytes` son los bytes UTF-8 del texto que se aprende (en conversaciones, lo que dice el
    asistente), sin tokens especiales: el denominador de los bits por byte. `trained_tokens` son
    los tokens con máscara 1; sin máscara, todos.
    """

    tokens: int = Field(gt=0)
    trained_tokens: int = Field(ge=0)
    documents: int = Field(gt=0)
    raw_bytes: int = Field(ge=0)
    max_id: int = Field(ge=0)
    shards: list[ShardRecord] = Field(min_length=1)
    boundaries: FileRecord

    @property
    def masked(self) -> bool:
        """Si los shards llevan máscara de pérdida."""
        return self.shards[0].mask is not None


class TokenizerRecord(_Strict):
    """El tokenizador que hizo los ids."""

    kind: Literal["byte", "bpe"]
    vocab_size: int = Field(gt=0)
    fingerprint: str = Field(pattern=_SHA256)


class ShardIndex(_Strict):
    """El contenido de `index.json`. `vocab_size` es el del modelo para el que se hicieron."""

    version: int
    format: Literal["text", "chat"]
    dtype: Literal["uint8", "uint16"]
    vocab_size: int = Field(gt=0)
    eos_id: int = Field(ge=0)
    tokenizer: TokenizerRecord
    splits: dict[str, SplitRecord]

    @property
    def fingerprint(self) -> str:
        """SHA-256 del índice, que a su vez resume todos los datos."""
        return sha256_json(self.model_dump(mode="json"))

    @property
    def numpy_dtype(self) -> np.dtype[np.unsignedinteger]:
        """El tipo de los ids en disco, little-endian."""
        return np.dtype({"uint8": "u1", "uint16": "<u2"}[self.dtype])

    def split(self, name: str) -> SplitRecord:
        """Una parte por su nombre.

        Raises:
            DataError: no existe.
        """
        if name not in self.splits:
            raise DataError(f"los shards no tienen la parte {name!r}; hay {', '.join(self.splits)}")
        return self.splits[name]


def dtype_for(vocab_size: int) -> Literal["uint8", "uint16"]:
    """El menor tipo en que caben los ids de `vocab_size`.

    Raises:
        DataError: no caben en uint16.
    """
    if vocab_size > 1 << 16:
        raise DataError(
            f"model.vocab_size={vocab_size} no cabe en shards uint16 (ids hasta 65535); "
            "ponlo a 65536 o menos"
        )
    return "uint8" if vocab_size <= 1 << 8 else "uint16"


def read_index(shards_dir: Path) -> ShardIndex:
    """Lee `index.json` y comprueba versión, nombres, cuentas y tamaños (no los SHA-256).

    Raises:
        DataError: falta, es de otra versión, se contradice o un fichero no mide lo que dice.
    """
    path = shards_dir / INDEX_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"falta {path}; genera los shards (dvc repro tokenize)") from error
    _check_version(content, path)
    try:
        index = ShardIndex.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "el fichero"
        raise DataError(
            f"{path}: {where} no es válido ({first['msg']}); vuelve a generar los shards "
            "(dvc repro -f tokenize)"
        ) from error
    if problem := next(_contradictions(index, shards_dir), None):
        raise DataError(f"{path}: {problem}; vuelve a generar los shards (dvc repro -f tokenize)")
    return index


def check_vocabulary(index: ShardIndex, vocab_size: int, shards_dir: Path) -> None:
    """Comprueba que todos los ids tienen fila en un modelo de `vocab_size`.

    Raises:
        DataError: algún id no cabe; nombra los dos números.
    """
    for name, split in index.splits.items():
        if split.max_id >= vocab_size:
            raise DataError(
                f"{shards_dir} contiene el id {split.max_id} (parte {name}) y el modelo tiene "
                f"model.vocab_size={vocab_size}; vuelve a generar los shards (dvc repro tokenize)"
            )


def verify_shards(shards_dir: Path) -> ShardIndex:
    """Relee todos los ficheros y compara SHA-256, ids y límites con el índice.

    Raises:
        DataError: nombra el primer fichero que difiere.
    """
    index = read_index(shards_dir)
    for name, split in index.splits.items():
        largest = 0
        for record in split.shards:
            largest = max(largest, _verify_file(shards_dir, record, index.numpy_dtype))
            if record.mask is not None and _verify_file(shards_dir, record.mask, MASK_DTYPE) > 1:
                raise DataError(f"{shards_dir / record.mask.file} tiene valores distintos de 0 y 1")
        if largest != split.max_id:
            raise DataError(
                f"{shards_dir}: el id mayor de {name} es {largest} y el índice dice {split.max_id}"
            )
        _verify_file(shards_dir, split.boundaries, BOUNDARY_DTYPE)
        _verify_boundaries(shards_dir, split)
    return index


def read_boundaries(shards_dir: Path, split: SplitRecord) -> npt.NDArray[np.uint64]:
    """Dónde empieza cada documento (en tokens) y, al final, el total: documents + 1 valores."""
    return np.memmap(shards_dir / split.boundaries.file, dtype=BOUNDARY_DTYPE, mode="r")


def _check_version(content: bytes, path: Path) -> None:
    """La versión se mira antes que el esquema: el de otra versión puede ser otro."""
    try:
        value = json.loads(content)
    except ValueError:
        return  # el esquema dirá qué está mal
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and version != INDEX_VERSION:
        raise DataError(
            f"{path} es de la versión {version} y este programa lee la {INDEX_VERSION}; "
            "vuelve a generar los shards (dvc repro -f tokenize)"
        )


def _contradictions(index: ShardIndex, shards_dir: Path) -> Iterator[str]:
    if index.dtype != dtype_for(index.vocab_size):
        yield f"dtype {index.dtype} no corresponde a vocab_size={index.vocab_size}"
    if not index.tokenizer.vocab_size <= index.vocab_size or index.eos_id >= index.vocab_size:
        yield f"los ids del tokenizador no caben en vocab_size={index.vocab_size}"
    if index.eos_id != SEPARATOR_ID:
        yield f"los documentos acaban en el id {index.eos_id} y el modelo espera el {SEPARATOR_ID}"
    for name, split in index.splits.items():
        tokens = sum(record.tokens for record in split.shards)
        if tokens != split.tokens:
            yield f"los shards de {name} suman {tokens} tokens y la parte dice {split.tokens}"
        if split.max_id >= index.vocab_size:
            yield f"el id {split.max_id} de {name} no cabe en vocab_size={index.vocab_size}"
        if any((record.mask is not None) != split.masked for record in split.shards):
            yield f"solo algunos shards de {name} tienen máscara"
        yield from _wrong_sizes(index, split, shards_dir)


def _wrong_sizes(index: ShardIndex, split: SplitRecord, shards_dir: Path) -> Iterator[str]:
    sizes = {split.boundaries.file: BOUNDARY_DTYPE.itemsize * (split.documents + 1)}
    for record in split.shards:
        sizes[record.file] = record.tokens * index.numpy_dtype.itemsize
        if record.mask is not None:
            sizes[record.mask.file] = record.tokens
    for file, expected in sizes.items():
        path = shards_dir / file
        if not path.is_file():
            yield f"falta {file}"
        elif path.stat().st_size != expected:
            yield f"{file} mide {path.stat().st_size} bytes y debe medir {expected}"


def _verify_file(shards_dir: Path, record: FileRecord, dtype: np.dtype[np.unsignedinteger]) -> int:
    """Comprueba el SHA-256 y devuelve el mayor valor del fichero."""
    digest, largest = hashlib.sha256(), 0
    path = shards_dir / record.file
    with path.open("rb") as stream:
        while block := stream.read(_READ_BLOCK):
            digest.update(block)
            largest = max(largest, int(np.frombuffer(block, dtype=dtype).max()))
    if digest.hexdigest() != record.sha256:
        raise DataError(
            f"{path} tiene SHA-256 {digest.hexdigest()[:16]}… y el índice dice "
            f"{record.sha256[:16]}…; recupéralo (make pull) o vuelve a generarlo"
        )
    return largest


def _verify_boundaries(shards_dir: Path, split: SplitRecord) -> None:
    starts = read_boundaries(shards_dir, split)
    if int(starts[0]) != 0 or int(starts[-1]) != split.tokens or np.any(starts[1:] <= starts[:-1]):
        raise DataError(
            f"{shards_dir / split.boundaries.file}: los límites de documento no van de 0 a "
            f"{split.tokens} en orden creciente"
        )
