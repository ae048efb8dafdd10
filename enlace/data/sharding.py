"""La etapa de los shards: del corpus limpio y el tokenizador a ids en disco."""

import json
import shutil
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.schema import DataConfig
from enlace.data.corpus import SPLITS, read_corpus
from enlace.data.encode import Encoder, EncoderSettings, batches_of
from enlace.data.index import (
    BOUNDARY_DTYPE,
    INDEX_FILE,
    INDEX_VERSION,
    MAX_SHARDS,
    ShardIndex,
    SplitRecord,
    TokenizerRecord,
    dtype_for,
)
from enlace.data.shards import SplitWriter, too_many_shards
from enlace.data.throughput import Throughput
from enlace.data.tokenizer import Tokenizer
from enlace.data.vocabulary import build_tokenizer
from enlace.data.workers import encode_ordered
from enlace.errors import DataError, cause_of
from enlace.figures import number
from enlace.files import atomic_dir, remove_temporaries, write_json

__all__ = ["build_shards", "build_tokenizer"]

_SPACE_MARGIN = 1.1
_MEGABYTE = 1_000_000


class _Size(NamedTuple):
    """De una parte, según el informe del corpus: sus bytes UTF-8 y los de una época, con copias."""

    documents: int
    bytes: int
    epoch_bytes: int


def build_shards(
    corpus_dir: Path,
    tokenizer_dir: Path,
    shards_dir: Path,
    data: DataConfig,
    vocab_size: int,
    seq_len: int = 1,
) -> dict[str, Any]:
    """Codifica el corpus en `shards_dir` y devuelve un informe con las cuentas de cada parte.

    Para entrenar hace falta al menos una ventana de `seq_len` + 1 tokens; para validar, dos tokens.

    Los bytes escritos no dependen de `data.workers` ni de `data.tokenizer.fast_encoder`. Un trabajo
    cortado empieza de nuevo: sus restos se borran aquí y nunca parecen shards.

    Raises:
        DataError: falta algo, un id no cabe, no hay sitio en el disco o saldrían demasiados
            ficheros (todo antes de escribir nada), los codificadores difieren o el texto no da
            para una ventana (y entonces no queda nada escrito).
    """
    dtype = dtype_for(vocab_size)
    settings = EncoderSettings(tokenizer_dir, data.tokenizer.fast_encoder, data.format, dtype)
    encoder = Encoder(settings)  # si no sirve, se sabe antes de escribir nada
    tokenizer = encoder.tokenizer
    if tokenizer.vocab_size > vocab_size:
        raise DataError(
            f"el tokenizador de {tokenizer_dir} llega al id {tokenizer.vocab_size - 1} y "
            f"model.vocab_size={vocab_size}; vuelve a entrenarlo (dvc repro tokenize)"
        )
    remove_temporaries(shards_dir.parent, shards_dir.name)
    sizes = _corpus_sizes(corpus_dir)
    _check_room(shards_dir, sizes, data.shard_tokens, corpus_dir, encoder)
    with atomic_dir(shards_dir) as folder:
        splits = {
            split: _write_split(folder, split, corpus_dir, size.bytes, data, vocab_size, encoder)
            for split, size in sizes.items()
        }
        _check_windows(splits, seq_len)
        index = ShardIndex(
            version=INDEX_VERSION,
            format=data.format,
            dtype=dtype,
            vocab_size=vocab_size,
            eos_id=tokenizer.eos_id,
            tokenizer=TokenizerRecord(
                kind=tokenizer.kind,
                vocab_size=tokenizer.vocab_size,
                fingerprint=tokenizer.fingerprint,
            ),
            splits=splits,
        )
        write_json(folder / INDEX_FILE, index.model_dump(mode="json"))
    return _report(index, tokenizer)


def _write_split(
    folder: Path,
    split: str,
    corpus_dir: Path,
    size: int,
    data: DataConfig,
    vocab_size: int,
    encoder: Encoder,
) -> SplitRecord:
    writer = SplitWriter(folder, split, data.shard_tokens, vocab_size)
    try:
        batches = batches_of(read_corpus(corpus_dir, split))
        with (
            Throughput(f"shards de {split}", size) as progress,
            closing(encode_ordered(batches, encoder, data.workers)) as encoded,
        ):
            for batch in encoded:
                writer.write(batch)
                progress.advance(batch.read_bytes)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _check_windows(splits: dict[str, SplitRecord], seq_len: int) -> None:
    for split, needed in (("train", seq_len + 1), ("val", 2)):
        tokens = splits[split].tokens
        if tokens >= needed:
            continue
        what = (
            f"una ventana necesita model.seq_len + 1 = {needed}"
            if split == "train"
            else ("hacen falta 2 para medir algo")
        )
        raise DataError(
            f"la parte {split} del corpus tiene {tokens} tokens y {what}; añade texto a data/raw "
            "o reduce model.seq_len"
        )


def _corpus_sizes(corpus_dir: Path) -> dict[str, _Size]:
    path = corpus_dir / "report.json"
    try:
        splits = json.loads(path.read_bytes())["splits"]
        return {
            name: _Size(*(int(splits[name][field]) for field in _Size._fields)) for name in SPLITS
        }
    except OSError as error:
        raise DataError(
            f"{path} no se puede leer ({cause_of(error)}); vuelve a generarlo (dvc repro -f corpus)"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} no es un informe del corpus ({error!r}); vuelve a generarlo "
            "(dvc repro -f corpus)"
        ) from error


def _check_room(
    shards_dir: Path, sizes: dict[str, _Size], shard_tokens: int, corpus_dir: Path, encoder: Encoder
) -> None:
    """Estima los shards con el primer lote y comprueba que caben, antes de escribir nada.

    Raises:
        DataError: falta sitio en el disco, o saldrían demasiados ficheros.
    """
    needed = 0
    for split, size in sizes.items():
        for documents in islice(batches_of(read_corpus(corpus_dir, split)), 1):
            batch = encoder.encode(documents)
            tokens = round(len(batch.ids) * size.epoch_bytes / max(1, batch.read_bytes))
            if tokens > shard_tokens * MAX_SHARDS:
                raise too_many_shards(shard_tokens, tokens)
            width = batch.ids.dtype.itemsize + (batch.mask is not None)
            needed += tokens * width + size.documents * BOUNDARY_DTYPE.itemsize
    needed = round(needed * _SPACE_MARGIN)
    existing = next(folder for folder in shards_dir.absolute().parents if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DataError(
            f"los shards ocuparán unos {number(needed / _MEGABYTE, 0)} MB y en el disco de "
            f"{existing} quedan {number(free / _MEGABYTE, 0)}; libera espacio o usa otro disco"
        )


def _report(index: ShardIndex, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "version": INDEX_VERSION,
        "fingerprint": index.fingerprint,
        "tokenizer": {"kind": tokenizer.kind, "fingerprint": tokenizer.fingerprint},
        "splits": {
            name: {
                "documents": split.documents,
                "tokens": split.tokens,
                "trained_tokens": split.trained_tokens,
                "raw_bytes": split.raw_bytes,
                "bytes_per_token": round(split.raw_bytes / max(1, split.trained_tokens), 4),
                "shards": len(split.shards),
            }
            for name, split in index.splits.items()
        },
    }
