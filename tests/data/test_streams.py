"""Flujos: función pura de (semilla, paso), cada ventana una vez, y estados ajenos rechazados."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from enlace.data.encode import EncodedBatch
from enlace.data.index import ShardIndex, TokenizerRecord
from enlace.data.shards import SplitWriter, read_index
from enlace.data.streams import (
    IGNORED,
    ByteStream,
    ShardStream,
    batch_hash,
    open_stream,
    validation_batches,
    window_order,
)
from enlace.errors import CheckpointError, DataError
from tests.data.builders import Prepared, bpe, prepare, stories

GOLDEN_ORDER = [6, 3, 4, 0, 2, 7, 5, 1]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("flujo")
    return prepare(folder, stories(48), bpe(400, **{"data.shard_tokens": 500}))


def _shards(folder: Path, ids: list[int], shard_tokens: int, vocab_size: int = 256) -> Path:
    """Una carpeta de shards con esos ids exactos en las dos partes."""
    folder.mkdir(parents=True)
    dtype = "uint8" if vocab_size <= 256 else "uint16"
    batch = EncodedBatch(np.array(ids, dtype), np.array([len(ids)]), None, np.array([len(ids)]))
    splits = {}
    for split in ("train", "val"):
        writer = SplitWriter(folder, split, shard_tokens, vocab_size)
        writer.write(batch)
        splits[split] = writer.close()
    index = ShardIndex(
        version=1,
        format="text",
        dtype="uint8" if vocab_size <= 256 else "uint16",
        vocab_size=vocab_size,
        eos_id=0,
        tokenizer=TokenizerRecord(kind="byte", vocab_size=256, fingerprint="0" * 64),
        splits=splits,
    )
    (folder / "index.json").write_text(index.model_dump_json(), encoding="utf-8")
    return folder


@given(
    tokens=st.integers(9, 120),
    shard_tokens=st.integers(1, 60),
    seq_len=st.integers(1, 8),
    sequences=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_cada_ventana_sale_una_vez_por_epoca(
    tmp_path_factory: pytest.TempPathFactory,
    tokens: int,
    shard_tokens: int,
    seq_len: int,
    sequences: int,
    seed: int,
) -> None:
    ids = [n % 251 for n in range(tokens)]
    folder = _shards(tmp_path_factory.mktemp("v") / "s", ids, shard_tokens)
    stream = open_stream(folder, "train", seq_len, sequences, seed)
    windows = (tokens - 1) // seq_len
    assert stream.windows == windows
    assert stream.dropped_tokens == tokens - (windows * seq_len + 1)
    assert 0 <= stream.dropped_tokens < seq_len
    expected = sorted(tuple(ids[w * seq_len : (w + 1) * seq_len + 1]) for w in range(windows))
    rows: list[tuple[int, ...]] = []
    epochs = 3
    for step in range(-(-epochs * windows // sequences)):
        batch = stream.batch(step)
        assert batch.ids.shape == batch.targets.shape == (sequences, seq_len)
        assert torch.equal(batch.ids[:, 1:], batch.targets[:, :-1])
        rows += [(*r, int(t[-1])) for r, t in zip(batch.ids.tolist(), batch.targets, strict=True)]
    for epoch in range(epochs):
        assert sorted(rows[epoch * windows : (epoch + 1) * windows]) == expected


def test_el_lote_es_funcion_pura_del_paso(prepared: Prepared) -> None:
    stream = open_stream(prepared.shards, "train", 32, 8, seed=3)
    steps = 2 * stream.windows // 8 + 3
    forward = [batch_hash(stream.batch(step)) for step in range(steps)]
    assert len(set(forward)) == steps
    resumed = open_stream(prepared.shards, "train", 32, 8, seed=3)
    order = [*range(steps - 1, -1, -1)]
    assert [batch_hash(resumed.batch(step)) for step in order] == forward[::-1]


def test_otra_semilla_u_otra_epoca_es_otro_orden(prepared: Prepared) -> None:
    one, other = (open_stream(prepared.shards, "train", 32, 8, seed) for seed in (0, 1))
    assert batch_hash(one.batch(0)) != batch_hash(other.batch(0))
    assert window_order(100, 5, 0).tolist() != window_order(100, 5, 1).tolist()
    assert window_order(100, 0, 5).tolist() != window_order(100, 5, 0).tolist()
    # Dorado: si cambia, los checkpoints de antes no continúan igual.
    assert window_order(8, 7, 0).tolist() == GOLDEN_ORDER


def test_el_reparto_en_shards_no_cambia_los_lotes(tmp_path: Path) -> None:
    ids = [n * 7 % 250 for n in range(500)]
    small = open_stream(_shards(tmp_path / "a", ids, 13), "train", 16, 4, 0)
    large = open_stream(_shards(tmp_path / "b", ids, 10_000), "train", 16, 4, 0)
    for step in range(20):
        assert batch_hash(small.batch(step)) == batch_hash(large.batch(step))


def test_los_lotes_son_int64_en_cpu_y_su_resumen_los_distingue(prepared: Prepared) -> None:
    batch = open_stream(prepared.shards, "train", 16, 4, 0).batch(0)
    assert (batch.ids.dtype, batch.targets.dtype) == (torch.int64, torch.int64)
    assert batch.ids.device.type == "cpu"
    digest = batch_hash(batch)
    assert len(digest) == 16
    changed = batch._replace(targets=batch.targets.clone())
    assert batch_hash(changed) == digest
    changed.targets[0, 0] = IGNORED
    assert batch_hash(changed) != digest


def test_el_tipo_del_flujo_es_el_de_los_shards(prepared: Prepared, tmp_path: Path) -> None:
    folder = _shards(tmp_path / "s", list(range(200)), 50)
    assert type(open_stream(folder, "train", 8, 2, 0)) is ByteStream
    assert type(open_stream(prepared.shards, "train", 8, 2, 0)) is ShardStream
    with pytest.raises(DataError, match="guarda ids uint8 y ShardStream lee uint16"):
        ShardStream(folder, "train", 8, 2, 0)


def test_un_corpus_mas_corto_que_una_ventana_da_los_dos_numeros(tmp_path: Path) -> None:
    folder = _shards(tmp_path / "s", list(range(16)), 50)
    with pytest.raises(DataError, match=r"16 tokens .*seq_len \+ 1 = 17"):
        open_stream(folder, "train", 16, 2, 0)
    assert open_stream(folder, "train", 15, 2, 0).windows == 1


def test_un_id_sin_fila_en_el_modelo_da_los_dos_numeros(tmp_path: Path) -> None:
    folder = _shards(tmp_path / "s", [5, 299, 7], 50, vocab_size=400)
    assert open_stream(folder, "train", 2, 1, 0, vocab_size=300).windows == 1
    for call in (open_stream, validation_batches):
        with pytest.raises(DataError, match=r"el id 299 .*vocab_size=299"):
            call(folder, "train", 2, 1, 0, vocab_size=299)


def test_un_separador_que_no_es_el_del_modelo_da_los_dos_numeros(tmp_path: Path) -> None:
    path = _shards(tmp_path / "s", [5, 0, 7, 0], 50) / "index.json"
    path.write_text(path.read_text("utf-8").replace('"eos_id":0', '"eos_id":7'), "utf-8")
    with pytest.raises(DataError, match=r"acaban en el id 7 y el modelo espera el 0.*vuelve a"):
        open_stream(path.parent, "train", 2, 1, 0)
    with pytest.raises(DataError, match="acaban en el id 7"):
        validation_batches(path.parent, "val", 2, 1, 0)


def test_el_estado_es_json_y_continua_donde_estaba(prepared: Prepared) -> None:
    stream = open_stream(prepared.shards, "train", 32, 8, seed=3)
    for step in (0, 5, stream.windows):
        state = json.loads(json.dumps(stream.state_dict(step)))
        epoch, position = divmod(step * 8, stream.windows)
        assert (state["epoch"], state["position"], state["step"]) == (epoch, position, step)
        assert state["fingerprint"] == read_index(prepared.shards).fingerprint
        open_stream(prepared.shards, "train", 32, 8, seed=3).check_state(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "f" * 64}, "fingerprint era 'ffff.*' y ahora es '"),
        ({"seed": 4}, "seed era 4 y ahora es 3"),
        ({"seq_len": 64}, "seq_len era 64 y ahora es 32"),
        ({"sequences": 4}, "sequences era 4 y ahora es 8"),
        ({"split": "val"}, "split era 'val' y ahora es 'train'"),
        ({"position": 1}, "position era 1"),
        ({"version": 2}, "version era 2 y ahora es 1"),
        ({"step": -1}, "step=-1"),
        ({"step": None}, "step=None"),
        ({"mezcla": 1}, "claves desconocidas .mezcla"),
    ],
)
def test_un_estado_ajeno_se_rechaza(
    prepared: Prepared, change: dict[str, Any], message: str
) -> None:
    stream = open_stream(prepared.shards, "train", 32, 8, seed=3)
    with pytest.raises(CheckpointError, match=message):
        stream.check_state(stream.state_dict(5) | change)


def test_los_datos_de_otro_corpus_se_rechazan_nombrando_las_dos_huellas(
    prepared: Prepared, tmp_path: Path
) -> None:
    changes = bpe(400, **{"data.shard_tokens": 500})
    other = prepare(tmp_path, stories(48, seed=9), changes)
    first = open_stream(prepared.shards, "train", 32, 8, 3)
    second = open_stream(other.shards, "train", 32, 8, 3)
    with pytest.raises(CheckpointError) as caught:
        second.check_state(first.state_dict(2))
    assert first.fingerprint in str(caught.value)
    assert second.fingerprint in str(caught.value)


@pytest.mark.parametrize("seq_len", [1, 7, 16, 300])
@pytest.mark.parametrize("rows", [1, 3])
def test_la_validacion_recorre_cada_objetivo_una_vez(
    tmp_path: Path, seq_len: int, rows: int
) -> None:
    ids = [n * 7 % 250 for n in range(211)]
    folder = _shards(tmp_path / "s", ids, 40)
    batches = list(validation_batches(folder, "val", seq_len, rows, 0))
    assert {tuple(batch.ids.shape) for batch in batches} == {(rows, seq_len)}
    targets = torch.cat([batch.targets.flatten() for batch in batches])
    inputs = torch.cat([batch.ids.flatten() for batch in batches])
    assert targets[targets != IGNORED].tolist() == ids[1:]
    assert inputs[targets != IGNORED].tolist() == ids[:-1]
    assert not inputs[targets == IGNORED].any()


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (50, 50), (9999, 210)])
def test_la_validacion_se_detiene_en_max_tokens(tmp_path: Path, limit: int, expected: int) -> None:
    ids = [n * 7 % 250 for n in range(211)]
    folder = _shards(tmp_path / "s", ids, 40)
    batches = validation_batches(folder, "val", 16, 2, limit)
    targets = torch.cat([batch.targets.flatten() for batch in batches])
    assert targets[targets != IGNORED].tolist() == ids[1 : expected + 1]


def test_la_validacion_de_un_solo_token_se_rechaza_al_llamar(tmp_path: Path) -> None:
    folder = _shards(tmp_path / "s", [5], 40)
    with pytest.raises(DataError, match="un solo token"):
        validation_batches(folder, "val", 16, 2, 0)
