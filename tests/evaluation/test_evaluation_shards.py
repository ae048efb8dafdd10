"""La evaluación sobre shards de verdad: los bytes contados token a token son los del índice."""

from pathlib import Path

import pytest
import torch

from enlace.config.schema import Config
from enlace.data.index import read_index
from enlace.data.preparation.build import build_corpus
from enlace.data.sharding import build_shards
from enlace.data.streams import validation_batches
from enlace.data.tokenizer import Tokenizer, load_tokenizer
from enlace.data.vocabulary import build_tokenizer
from enlace.evaluation.byte_counts import bytes_per_id
from enlace.evaluation.loss import evaluate_loss
from tests.evaluation.support_evaluation import tiny_backend, tiny_model
from tests.support import make_config

BPE = {"model.vocab_size": 320, "data.tokenizer.kind": "bpe", "data.val_fraction": 0.4}
BYTES = {"data.val_fraction": 0.4}


@pytest.fixture(scope="module", params=[BYTES, BPE], ids=["byte", "bpe"])
def prepared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Config, Path, Tokenizer]:
    root, config = tmp_path_factory.mktemp("datos"), make_config(request.param)
    source = root / "origen"
    source.mkdir()
    for number in range(12):
        text = f"Capítulo {number}. El ñandú n.º {number} cruzó la pampa — ¿adónde iría? "
        (source / f"{number:02d}.txt").write_text(text + "\U0001f40e\n", encoding="utf-8")
    vocabulary = config.model.vocab_size
    build_corpus(source, root / "corpus", config.data)
    build_tokenizer(root / "corpus", root / "tokenizer", config.data, vocabulary)
    build_shards(root / "corpus", root / "tokenizer", root / "shards", config.data, vocabulary)
    return config, root / "shards", load_tokenizer(root / "tokenizer")


def test_los_bytes_evaluados_son_los_del_indice_menos_el_primer_token(
    prepared: tuple[Config, Path, Tokenizer],
) -> None:
    config, shards, tokenizer = prepared
    counts = bytes_per_id(tokenizer, config.model.vocab_size)
    record = read_index(shards).split("val")
    first = validation_batches(shards, "val", config.model.seq_len, 1, 0)
    first_id = int(next(iter(first)).ids[0, 0])
    assert record.documents > 1
    for rows in (2, 5):
        batches = validation_batches(shards, "val", config.model.seq_len, rows, 0)
        figures = evaluate_loss(tiny_model(config), batches, tiny_backend(), counts)
        # El primer token de todos no tiene contexto y nadie lo predice.
        assert figures.raw_bytes == record.raw_bytes - int(counts[first_id])
        assert figures.tokens == record.tokens - 1


def test_una_validacion_recortada_cuenta_solo_sus_bytes(
    prepared: tuple[Config, Path, Tokenizer],
) -> None:
    config, shards, tokenizer = prepared
    counts = bytes_per_id(tokenizer, config.model.vocab_size)
    limited = list(validation_batches(shards, "val", config.model.seq_len, 2, 40))
    figures = evaluate_loss(tiny_model(config), limited, tiny_backend(), counts)
    targets = torch.cat([batch.targets.flatten() for batch in limited])
    ids = targets[targets != -100].tolist()
    assert figures.tokens == len(ids) == 40
    text_ids = [identifier for identifier in ids if identifier != tokenizer.eos_id]
    assert figures.raw_bytes == int(counts[text_ids].sum())
    assert figures.bits_per_byte is not None
    # Un modelo recién hecho no sabe nada: unos log2(V) bits por token.
    bits_per_token = figures.loss / torch.tensor(2.0).log().item()
    assert figures.bits_per_byte == pytest.approx(
        bits_per_token * figures.tokens / figures.raw_bytes, rel=1e-6
    )
