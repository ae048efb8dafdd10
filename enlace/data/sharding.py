"""La etapa de los shards: del corpus limpio y el tokenizador a ids en disco."""

from contextlib import closing
from pathlib import Path
from typing import Any

from enlace.config.schema import DataConfig
from enlace.data.corpus import SPLITS, corpus_file, read_corpus
from enlace.data.encode import Encoder, EncoderSettings, batches_of
from enlace.data.index import (
    INDEX_FILE,
    INDEX_VERSION,
    ShardIndex,
    SplitRecord,
    TokenizerRecord,
    dtype_for,
)
from enlace.data.shards import SplitWriter
from enlace.data.tokenizer import Tokenizer, load_tokenizer
from enlace.data.vocabulary import build_tokenizer
from enlace.data.workers import encode_ordered, worker_count
from enlace.errors import DataError
from enlace.files import atomic_dir, write_json

__all__ = ["build_shards", "build_tokenizer"]

# Arrancar un proceso cuesta lo que codificar unos megabytes de corpus comprimido.
_BYTES_PER_WORKER = 8 << 20


def build_shards(
    corpus_dir: Path,
    tokenizer_dir: Path,
    shards_dir: Path,
    data: DataConfig,
    vocab_size: int,
    bytes_per_worker: int = _BYTES_PER_WORKER,
) -> dict[str, Any]:
    """Codifica el corpus en `shards_dir` y devuelve un informe con las cuentas de cada parte.

    Los bytes escritos no dependen de `data.workers` ni de `data.tokenizer.fast_encoder`. Si el
    corpus comprimido no llega a `bytes_per_worker` por proceso, se usan menos.

    Raises:
        DataError: falta algo, un id no cabe (antes de escribir nada) o los codificadores difieren.
    """
    dtype = dtype_for(vocab_size)
    tokenizer = load_tokenizer(tokenizer_dir)
    if tokenizer.vocab_size > vocab_size:
        raise DataError(
            f"el tokenizador de {tokenizer_dir} llega al id {tokenizer.vocab_size - 1} y "
            f"model.vocab_size={vocab_size}; vuelve a entrenarlo (dvc repro tokenize)"
        )
    settings = EncoderSettings(tokenizer_dir, data.tokenizer.fast_encoder, data.format, dtype)
    encoder = Encoder(settings)  # si no sirve, se sabe antes de escribir nada
    with atomic_dir(shards_dir) as folder:
        splits: dict[str, SplitRecord] = {}
        for split in SPLITS:
            source = corpus_file(corpus_dir, split)
            compressed = source.stat().st_size if source.is_file() else 0
            workers = worker_count(data.workers, compressed, bytes_per_worker)
            writer = SplitWriter(folder, split, data.shard_tokens, vocab_size)
            try:
                batches = batches_of(read_corpus(corpus_dir, split))
                with closing(encode_ordered(batches, encoder, workers)) as encoded:
                    for batch in encoded:
                        writer.write(batch)
            except BaseException:
                writer.abort()
                raise
            splits[split] = writer.close()
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
