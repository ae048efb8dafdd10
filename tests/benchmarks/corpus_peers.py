"""Un contrincante por orden: del mismo `{train,val}.jsonl.zst` a ids uint16 en disco.

    python -m tests.benchmarks.corpus_peers NOMBRE CARPETA SALIDA PROCESOS

Cada uno hace lo mismo con el mismo `tokenizer.json`: los ids de cada documento y un 0 detrás. Aquí
no se mide nada; lo hace `corpus_throughput`, desde fuera y sobre el proceso entero.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPLITS = ("train", "val")
RUN = Path("configs/runs/pretrain-2060.yaml")
_EOS = 0
_MAP_BATCH = 256
_MEMMAP_PIECES = 64


def enlace(work: Path, out: Path, workers: int) -> None:
    """La etapa de shards, con su índice, sus SHA-256 y sus fsync."""
    from enlace.config.load import load_config
    from enlace.data.sharding import build_shards

    config = load_config(RUN)
    data = config.data.model_copy(update={"workers": workers})
    build_shards(work / "corpus", work / "tokenizer", out, data, config.model.vocab_size)


def datasets_map(work: Path, out: Path, workers: int) -> None:
    """`datasets.map` por lotes con `tokenizers`, columna uint16 y volcado desde Arrow."""
    import numpy as np
    from datasets import Features, Sequence, Value
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(work / "tokenizer" / "tokenizer.json"))
    tokenizer.encode_special_tokens = True

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"ids": [[*encoding.ids, _EOS] for encoding in encodings]}

    out.mkdir()
    for split, rows in _load(work).items():
        encoded = rows.map(
            encode,
            batched=True,
            batch_size=_MAP_BATCH,
            num_proc=workers,
            remove_columns=rows.column_names,
            features=Features({"ids": Sequence(Value("uint16"))}),
        )
        with (out / f"{split}.bin").open("wb") as stream:
            for table in encoded.with_format("arrow").iter(_MAP_BATCH):
                for chunk in table.column("ids").chunks:
                    stream.write(np.ascontiguousarray(chunk.flatten().to_numpy()).data)


def nanogpt_tokenizers(work: Path, out: Path, workers: int) -> None:
    """La forma de `prepare.py` de nanoGPT (un documento por llamada, memmap), con `tokenizers`."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(work / "tokenizer" / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    _nanogpt(work, out, workers, lambda text: tokenizer.encode(text, add_special_tokens=False).ids)


def nanogpt_tiktoken(work: Path, out: Path, workers: int) -> None:
    """Lo mismo con tiktoken, que es como lo hace nanoGPT, y nuestro vocabulario como rangos."""
    import tiktoken

    from enlace.data.bpe import QWEN2_PATTERN

    encoding = tiktoken.Encoding(
        "es", pat_str=QWEN2_PATTERN, mergeable_ranks=_ranks(work), special_tokens={}
    )
    _nanogpt(work, out, workers, encoding.encode_ordinary)


def _nanogpt(work: Path, out: Path, workers: int, encode: Callable[[str], list[int]]) -> None:
    import numpy as np

    def process(example: dict[str, str]) -> dict[str, Any]:
        ids = encode(example["text"])
        ids.append(_EOS)
        return {"ids": ids, "len": len(ids)}

    out.mkdir()
    for split, rows in _load(work).items():
        encoded = rows.map(process, num_proc=workers, remove_columns=rows.column_names)
        total = int(np.sum(encoded["len"], dtype=np.uint64))
        content = np.memmap(out / f"{split}.bin", dtype="<u2", mode="w+", shape=(total,))
        position, pieces = 0, min(_MEMMAP_PIECES, len(encoded))
        for piece in range(pieces):
            batch = encoded.shard(num_shards=pieces, index=piece, contiguous=True)
            ids = np.concatenate(batch.with_format("numpy")["ids"][:])
            content[position : position + len(ids)] = ids
            position += len(ids)
        content.flush()


def _load(work: Path) -> Any:
    from datasets import load_dataset

    files = {split: str(work / "corpus" / f"{split}.jsonl.zst") for split in SPLITS}
    return load_dataset("json", data_files=files, cache_dir=os.environ["HF_DATASETS_CACHE"])


def _ranks(work: Path) -> dict[bytes, int]:
    """El vocabulario como tiktoken lo quiere: bytes de cada token y su id, que es su rango."""
    from enlace.data.bpe import SPECIAL_TOKENS
    from enlace.data.tokenizer import ByteTokenizer

    content = json.loads((work / "tokenizer" / "tokenizer.json").read_text("utf-8"))
    symbols = json.loads(ByteTokenizer().to_json())["model"]["vocab"]
    return {
        bytes(symbols[symbol] for symbol in token): identifier
        for token, identifier in content["model"]["vocab"].items()
        if token not in SPECIAL_TOKENS
    }


PEERS: dict[str, Callable[[Path, Path, int], None]] = {
    "enlace": enlace,
    "datasets.map + tokenizers": datasets_map,
    "nanoGPT + tiktoken": nanogpt_tiktoken,
    "nanoGPT + tokenizers": nanogpt_tokenizers,
}


if __name__ == "__main__":
    name, work_, out_, workers_ = sys.argv[1:]
    PEERS[name](Path(work_), Path(out_), int(workers_))
