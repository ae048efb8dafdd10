"""Shards: bytes repetibles, índice comprobado y nada fuera del vocabulario."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enlace.config.schema import DataConfig
from enlace.data.corpus import read_corpus
from enlace.data.encode import EncodedBatch, FastEncoder, batches_of
from enlace.data.index import dtype_for
from enlace.data.sharding import build_shards
from enlace.data.shards import SplitWriter, read_boundaries, read_index, verify_shards
from enlace.data.tokenizer import load_tokenizer
from enlace.errors import DataError
from tests.data.builders import Prepared, bpe, folder_bytes, prepare, stories
from tests.support import make_config

_FILES = stories(48) | {"especial.txt": "uno <|endoftext|> dos <|im_end|>"}
_CHANGES = bpe(400, **{"data.shard_tokens": 1000})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("bpe"), _FILES, _CHANGES)


def _copy(prepared: Prepared, folder: Path) -> Path:
    target = folder / "shards"
    target.mkdir()
    for name, content in folder_bytes(prepared.shards).items():
        (target / name).write_bytes(content)
    return target


def test_los_shards_son_los_documentos_uno_tras_otro(prepared: Prepared) -> None:
    tokenizer = load_tokenizer(prepared.tokenizer)
    index = read_index(prepared.shards)
    for name in ("train", "val"):
        documents = list(read_corpus(prepared.corpus, name))
        expected: list[int] = []
        starts: list[int] = []
        for document in documents:
            starts.append(len(expected))
            expected += [*tokenizer.encode(document.text), tokenizer.eos_id]
        split = index.split(name)
        files = [prepared.shards / shard.file for shard in split.shards]
        found = np.concatenate([np.fromfile(file, "<u2") for file in files])
        assert found.tolist() == expected
        assert read_boundaries(prepared.shards, split).tolist() == [*starts, len(expected)]
        assert split.tokens == split.trained_tokens == len(expected)
        assert split.documents == len(documents)
        assert split.raw_bytes == sum(len(d.text.encode()) for d in documents)
        assert split.max_id == max(expected)
        assert [s.tokens for s in split.shards[:-1]] == [1000] * (len(files) - 1)
    assert len(index.split("train").shards) > 2
    assert index.tokenizer.fingerprint == tokenizer.fingerprint
    assert (index.dtype, index.eos_id, index.vocab_size) == ("uint16", 0, 400)


def test_los_bytes_llegan_como_uint8_separados_por_nul(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, stories(48))
    index = read_index(prepared.shards)
    files = [prepared.shards / shard.file for shard in index.split("train").shards]
    content = b"".join(file.read_bytes() for file in files)
    texts = [document.text.encode() for document in read_corpus(prepared.corpus, "train")]
    assert content == b"".join(text + b"\0" for text in texts)
    assert index.dtype == "uint8"
    assert verify_shards(prepared.shards) == index


@pytest.mark.parametrize(("workers", "fast"), [(1, False), (2, True), (3, False)])
def test_los_bytes_no_dependen_de_los_hilos_ni_del_codificador(
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    fast: bool,
) -> None:
    monkeypatch.setattr("enlace.data.encode._BATCH_DOCUMENTS", 5)
    changes = {"data.workers": workers, "data.tokenizer.fast_encoder": fast}
    data = make_config(_CHANGES | changes).data
    build_shards(prepared.corpus, prepared.tokenizer, tmp_path / "s", data, 400)
    assert folder_bytes(tmp_path / "s") == folder_bytes(prepared.shards)


def test_un_fallo_en_otro_hilo_llega_entero_y_no_deja_restos(
    prepared: Prepared, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, content in folder_bytes(prepared.corpus).items():
        (corpus / name).write_bytes(content)
    (corpus / "val.jsonl.zst").write_bytes(b"roto")
    data = make_config(_CHANGES | {"data.workers": 2}).data
    with pytest.raises(DataError, match="dañado"):
        build_shards(corpus, prepared.tokenizer, tmp_path / "s", data, 400)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_un_codificador_rapido_que_difiere_se_descubre(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FastEncoder.encode_arrays

    def wrong_on_stories(self: FastEncoder, texts: list[str]) -> list[Any]:
        arrays = honest(self, texts)
        return [a[::-1] if "abuela" in t else a for a, t in zip(arrays, texts, strict=True)]

    monkeypatch.setattr(FastEncoder, "encode_arrays", wrong_on_stories)
    data = make_config(_CHANGES).data
    with pytest.raises(DataError, match=r"cuento_\d+\.txt.*fast_encoder: false"):
        build_shards(prepared.corpus, prepared.tokenizer, tmp_path / "s", data, 400)
    assert not (tmp_path / "s").exists()


def test_los_ids_que_no_caben_se_rechazan_antes_de_escribir(
    prepared: Prepared, tmp_path: Path
) -> None:
    for vocab_size, message in ((65_537, "65535"), (399, r"id 399 y model\.vocab_size=399")):
        with pytest.raises(DataError, match=message):
            build_shards(
                prepared.corpus,
                prepared.tokenizer,
                tmp_path / "s",
                prepared.config.data,
                vocab_size,
            )
    assert list(tmp_path.iterdir()) == []
    assert dtype_for(1 << 16) == "uint16"


def test_el_escritor_rechaza_un_id_fuera_del_vocabulario(tmp_path: Path) -> None:
    writer = SplitWriter(tmp_path, "train", 10, 300)
    batch = EncodedBatch(np.array([5, 300], "<u2"), np.array([2]), None, np.array([1]))
    with pytest.raises(DataError, match=r"el id 300 y model\.vocab_size=300"):
        writer.write(batch)
    writer.abort()


def test_verificar_nombra_el_primer_fichero_cambiado(prepared: Prepared, tmp_path: Path) -> None:
    folder = _copy(prepared, tmp_path)
    assert verify_shards(folder) == read_index(folder)
    path = folder / "train-00001.bin"
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00001\.bin tiene SHA-256"):
        verify_shards(folder)


_Damage = Callable[[Path, dict[str, Any]], None]


def _set(*keys: Any, value: Any) -> _Damage:
    def damage(_: Path, index: dict[str, Any]) -> None:
        target: Any = index
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return damage


def _truncate(folder: Path, _: dict[str, Any]) -> None:
    path = folder / "train-00000.bin"
    path.write_bytes(path.read_bytes()[:-2])


def _remove(folder: Path, _: dict[str, Any]) -> None:
    (folder / "val.docs.bin").unlink()


_FIRST = ("splits", "train", "shards", 0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_set("version", value=99), "versión 99 y este programa lee la 1"),
        (_set(*_FIRST, "file", value="../fuera-00000.bin"), r"shards\.0\.file no es válido"),
        (_set(*_FIRST, "file", value="/etc/passwd"), r"shards\.0\.file no es válido"),
        (_set(*_FIRST, "sha256", value="x"), r"shards\.0\.sha256 no es válido"),
        (_set(*_FIRST, "tokens", value=999), "suman .* tokens y la parte dice"),
        (_set("dtype", value="uint8"), "dtype uint8 no corresponde"),
        (_set("splits", "val", "max_id", value=400), r"el id 400 de val no cabe"),
        (_set("splits", "val", "documents", value=1), r"val\.docs\.bin mide"),
        (_set("sobra", value=1), "sobra no es válido"),
        (_truncate, r"train-00000\.bin mide 1998 bytes y debe medir 2000"),
        (_remove, r"falta val\.docs\.bin"),
    ],
)
def test_un_indice_que_no_cuadra_se_rechaza(
    prepared: Prepared, tmp_path: Path, damage: _Damage, message: str
) -> None:
    folder = _copy(prepared, tmp_path)
    path = folder / "index.json"
    index = json.loads(path.read_text("utf-8"))
    damage(folder, index)
    path.write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_index(folder)


def test_un_indice_ausente_o_ilegible_se_rechaza(prepared: Prepared, tmp_path: Path) -> None:
    folder = _copy(prepared, tmp_path)
    (folder / "index.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"index\.json"):
        read_index(folder)
    (folder / "index.json").unlink()
    with pytest.raises(DataError, match="genera los shards"):
        read_index(folder)
    with pytest.raises(DataError, match="no tienen la parte 'test'"):
        read_index(prepared.shards).split("test")


def test_los_lotes_tienen_tope_y_no_pierden_documentos(prepared: Prepared) -> None:
    documents = list(read_corpus(prepared.corpus, "train"))
    batches = list(batches_of(documents))
    assert [d for batch in batches for d in batch] == documents
    large = documents[0]._replace(text="x" * (1 << 20))
    assert [len(b) for b in batches_of([documents[0], large, documents[1]])] == [1, 1, 1]


def test_los_restos_de_un_corte_se_borran_al_empezar_y_los_ajenos_no(
    prepared: Prepared, tmp_path: Path
) -> None:
    for name in (".tmp-0123456789ab-s", ".tmp-0123456789ab-corpus", ".tmp-0123456789ab-mis-s"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train-00000.bin").write_bytes(b"a medias")
    build_shards(prepared.corpus, prepared.tokenizer, tmp_path / "s", prepared.config.data, 400)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".tmp-0123456789ab-corpus", ".tmp-0123456789ab-mis-s", "s"]
    assert folder_bytes(tmp_path / "s") == folder_bytes(prepared.shards)


def test_sin_sitio_en_el_disco_se_dice_antes_de_escribir(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(len(content) for content in folder_bytes(prepared.shards).values())
    free = shutil.disk_usage(tmp_path)._replace(free=needed // 2)
    monkeypatch.setattr("enlace.data.sharding.shutil.disk_usage", lambda _: free)
    with pytest.raises(DataError, match=r"ocuparán unos .* MB y en el disco de .* libera espacio"):
        build_shards(prepared.corpus, prepared.tokenizer, tmp_path / "s", _with_shards(1000), 400)
    assert list(tmp_path.iterdir()) == []


def test_demasiados_ficheros_se_rechazan_con_un_remedio_que_vale(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enlace.data.sharding.MAX_SHARDS", 20)
    monkeypatch.setattr("enlace.data.shards.MAX_SHARDS", 20)
    with pytest.raises(DataError, match=r"data\.shard_tokens=1 partiría .* 20 ficheros") as caught:
        build_shards(prepared.corpus, prepared.tokenizer, tmp_path / "s", _with_shards(1), 400)
    assert list(tmp_path.iterdir()) == []
    remedy = int(str(caught.value).rsplit(" ", 1)[1])
    build_shards(prepared.corpus, prepared.tokenizer, tmp_path / "s", _with_shards(remedy), 400)
    writer = SplitWriter(tmp_path, "train", 1, 400)
    batch = EncodedBatch(np.zeros(21, "<u2"), np.array([21]), None, np.array([1]))
    with pytest.raises(DataError, match="pon al menos 2"):
        writer.write(batch)
    writer.abort()


def _with_shards(tokens: int) -> DataConfig:
    return make_config(_CHANGES).data.model_copy(update={"shard_tokens": tokens})


def test_un_texto_que_no_da_para_una_ventana_lo_dice_y_no_deja_shards(
    prepared: Prepared, tmp_path: Path
) -> None:
    tokens = read_index(prepared.shards).split("train").tokens
    arguments = (prepared.corpus, prepared.tokenizer, tmp_path / "s", _with_shards(1000), 400)
    with pytest.raises(
        DataError, match=rf"train del corpus tiene {tokens} tokens.*seq_len \+ 1 = {tokens + 1}"
    ):
        build_shards(*arguments, tokens)
    assert list(tmp_path.iterdir()) == []
    build_shards(*arguments, tokens - 1)
    assert folder_bytes(tmp_path / "s") == folder_bytes(prepared.shards)
