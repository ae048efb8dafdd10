"""Flujos de lotes: el lote n es una función pura de (semilla, n).

Letras: S secuencias de un paso, T `seq_len`, W ventanas de una época.

La parte entera es una sola tira de tokens. La ventana w cubre [w·T, w·T + T + 1): T entradas y sus
T objetivos, de modo que cada token (menos el primero) es objetivo una sola vez por época. Sobra al
final, como mucho, una ventana incompleta: `dropped_tokens`. Cada época recorre las W ventanas en
otra permutación; los pasos toman S seguidas y pueden cruzar de una época a la siguiente.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from enlace.data.index import MASK_DTYPE, ShardIndex, check_vocabulary, read_index
from enlace.errors import CheckpointError, DataError

IGNORED = -100
STATE_VERSION = 1


class Batch(NamedTuple):
    """Un lote en CPU: `ids` y `targets` (S, T) int64; los objetivos −100 no cuentan."""

    ids: Tensor
    targets: Tensor


class TokenStream(Protocol):
    """Lo que el entrenamiento pide a un flujo. `fingerprint` resume los datos."""

    fingerprint: str

    def batch(self, step: int) -> Batch:
        """El lote del paso `step` (desde 0)."""

    def state_dict(self, step: int) -> dict[str, Any]:
        """El estado, en JSON, cuando el próximo lote es el de `step`."""

    def check_state(self, state: dict[str, Any]) -> None:
        """Rechaza un estado de otros datos."""


class _Strip:
    """Los ficheros de una parte leídos como una sola tira, sin cargarlos."""

    def __init__(self, files: list[tuple[Path, int]], dtype: np.dtype[np.unsignedinteger]) -> None:
        # Vistas corrientes: cortar un memmap cuesta varias veces más que cortar un array.
        self._maps = [np.asarray(np.memmap(path, dtype=dtype, mode="r")) for path, _ in files]
        self._ends = list(accumulate(tokens for _, tokens in files))

    def read(self, start: int, count: int) -> npt.NDArray[np.unsignedinteger]:
        """Los `count` valores desde `start`, crucen los ficheros que crucen; no se escriben."""
        file = bisect_right(self._ends, start)
        inside = start - (self._ends[file - 1] if file else 0)
        piece = self._maps[file][inside : inside + count]
        if len(piece) == count:
            return piece
        pieces, done = [piece], len(piece)
        while done < count:
            file += 1
            pieces.append(self._maps[file][: count - done])
            done += len(pieces[-1])
        return np.concatenate(pieces)


class _Windows:
    """Lee ventanas (entradas y objetivos) de una parte."""

    def __init__(self, shards_dir: Path, index: ShardIndex, split: str, seq_len: int) -> None:
        self.record = index.split(split)
        self.seq_len = seq_len
        shards = self.record.shards
        files = [(shards_dir / shard.file, shard.tokens) for shard in shards]
        masks = [(shards_dir / s.mask.file, s.tokens) for s in shards if s.mask is not None]
        self._ids = _Strip(files, index.numpy_dtype)
        self._mask = _Strip(masks, MASK_DTYPE) if masks else None

    def fill(self, start: int, ids_T: npt.NDArray[Any], targets_T: npt.NDArray[Any]) -> None:
        """Copia la ventana que empieza en el token `start` en dos filas de igual longitud."""
        length = len(ids_T)
        window = self._ids.read(start, length + 1)
        targets_T[:] = window[1:]
        ids_T[0] = window[0]
        ids_T[1:] = targets_T[:-1]  # ya son int64: copiar cuesta menos que convertir otra vez
        if self._mask is not None:
            targets_T[self._mask.read(start + 1, length) == 0] = IGNORED


class ShardStream:
    """Lotes barajados de una parte de shards uint16."""

    dtype = "uint16"

    def __init__(
        self, shards_dir: Path, split: str, seq_len: int, sequences: int, seed: int
    ) -> None:
        """Abre la parte.

        Raises:
            DataError: shards inválidos, de otro tipo, o con menos de seq_len + 1 tokens.
        """
        index = read_index(shards_dir)
        if index.dtype != self.dtype:
            raise DataError(
                f"{shards_dir} guarda ids {index.dtype} y {type(self).__name__} lee {self.dtype}"
            )
        self._windows = _Windows(shards_dir, index, split, seq_len)
        tokens = self._windows.record.tokens
        if tokens < seq_len + 1:
            raise DataError(
                f"la parte {split} de {shards_dir} tiene {tokens} tokens y una ventana necesita "
                f"model.seq_len + 1 = {seq_len + 1}; añade texto o reduce model.seq_len"
            )
        self.fingerprint = index.fingerprint
        self.split = split
        self.seq_len = seq_len
        self.sequences = sequences
        self.seed = seed
        self.windows = (tokens - 1) // seq_len
        self.dropped_tokens = tokens - self.windows * seq_len - 1
        self._epochs: dict[int, npt.NDArray[np.int64]] = {}

    def batch(self, step: int) -> Batch:
        """El lote del paso `step`: depende solo de los datos, la semilla y `step`."""
        ids_ST = np.empty((self.sequences, self.seq_len), dtype=np.int64)
        targets_ST = np.empty_like(ids_ST)
        for row in range(self.sequences):
            epoch, position = divmod(step * self.sequences + row, self.windows)
            window = int(self._permutation(epoch)[position])
            self._windows.fill(window * self.seq_len, ids_ST[row], targets_ST[row])
        return Batch(torch.from_numpy(ids_ST), torch.from_numpy(targets_ST))

    def state_dict(self, step: int) -> dict[str, Any]:
        """El estado cuando el próximo lote es el de `step`; basta para rehacer el flujo."""
        epoch, position = divmod(step * self.sequences, self.windows)
        return {
            "version": STATE_VERSION,
            "fingerprint": self.fingerprint,
            "split": self.split,
            "seed": self.seed,
            "seq_len": self.seq_len,
            "sequences": self.sequences,
            "step": step,
            "epoch": epoch,
            "position": position,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Comprueba que `state` salió de un flujo idéntico a este.

        Raises:
            CheckpointError: nombra la primera clave que difiere y los dos valores.
        """
        step = state.get("step")
        if type(step) is not int or step < 0:
            raise CheckpointError(
                f"el estado de los datos no dice un paso válido (step={step!r}); "
                "el checkpoint está dañado: usa uno anterior"
            )
        expected = self.state_dict(step)
        for key, value in expected.items():
            if state.get(key) != value:
                raise CheckpointError(
                    f"el checkpoint se entrenó con otros datos: {key} era {state.get(key)!r} y "
                    f"ahora es {value!r}; recupera aquellos datos (dvc checkout, make pull) o "
                    "empieza otro run"
                )
        if unknown := sorted(state.keys() - expected.keys()):
            raise CheckpointError(
                f"el estado de los datos tiene claves desconocidas ({', '.join(unknown)}); "
                "lo escribió otra versión del programa"
            )

    def _permutation(self, epoch: int) -> npt.NDArray[np.int64]:
        if epoch not in self._epochs:
            order = window_order(self.windows, self.seed, epoch)
            # Un lote cruza pocas épocas: con las dos últimas no se recalcula nada al avanzar.
            while len(self._epochs) >= 2:
                del self._epochs[min(self._epochs)]
            self._epochs[epoch] = order
        return self._epochs[epoch]


class ByteStream(ShardStream):
    """El mismo contrato sobre bytes (uint8), sin tokenizador."""

    dtype = "uint8"


def window_order(windows: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """La permutación de W ventanas de una época.

    Ordena números crudos de PCG64: NumPy garantiza esos para siempre (NEP 19), y en cambio
    `Generator.permutation` puede cambiar de una versión a otra.
    """
    raw = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(windows)
    return np.argsort(raw, kind="stable")


def open_stream(
    shards_dir: Path,
    split: str,
    seq_len: int,
    sequences: int,
    seed: int,
    vocab_size: int | None = None,
) -> ByteStream | ShardStream:
    """Abre el flujo que corresponde al tipo de los shards.

    Con `vocab_size` (el del modelo) comprueba además que todos los ids tienen fila.

    Raises:
        DataError: shards inválidos, ids que no caben o texto insuficiente.
    """
    index = read_index(shards_dir)
    if vocab_size is not None:
        check_vocabulary(index, vocab_size, shards_dir)
    stream = ByteStream if index.dtype == ByteStream.dtype else ShardStream
    return stream(shards_dir, split, seq_len, sequences, seed)


def validation_batches(
    shards_dir: Path,
    split: str,
    seq_len: int,
    rows: int,
    max_tokens: int,
    vocab_size: int | None = None,
) -> Iterator[Batch]:
    """Lotes (rows, seq_len) en orden, con cada objetivo exactamente una vez.

    `max_tokens` limita los objetivos recorridos (0: todos). Lo que falta para llenar la última
    ventana y el último lote va con id 0 y objetivo −100, de modo que la forma no cambia.

    Raises:
        DataError: shards inválidos, ids que no caben o menos de dos tokens. Se lanza al llamar,
            no al pedir el primer lote.
    """
    index = read_index(shards_dir)
    if vocab_size is not None:
        check_vocabulary(index, vocab_size, shards_dir)
    windows = _Windows(shards_dir, index, split, seq_len)
    targets = windows.record.tokens - 1
    if targets < 1:
        raise DataError(f"la parte {split} de {shards_dir} tiene un solo token; añade texto")
    return _sequential(windows, rows, min(targets, max_tokens) if max_tokens else targets)


def _sequential(windows: _Windows, rows: int, targets: int) -> Iterator[Batch]:
    T = windows.seq_len
    for first in range(0, targets, rows * T):
        ids_BT = np.zeros((rows, T), dtype=np.int64)
        targets_BT = np.full_like(ids_BT, IGNORED)
        for row, start in enumerate(range(first, min(targets, first + rows * T), T)):
            length = min(T, targets - start)
            windows.fill(start, ids_BT[row, :length], targets_BT[row, :length])
        yield Batch(torch.from_numpy(ids_BT), torch.from_numpy(targets_BT))


def batch_hash(batch: Batch) -> str:
    """16 dígitos hexadecimales que identifican el contenido de un lote."""
    digest = hashlib.sha256()
    for tensor in batch:
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
