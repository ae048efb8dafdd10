"""Varios procesos: orden, tope de lotes pendientes y procesos que mueren."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from enlace.data.corpus import CorpusDocument
from enlace.data.encode import Encoder, EncoderSettings
from enlace.data.tokenizer import ByteTokenizer, save_tokenizer
from enlace.data.workers import encode_ordered
from enlace.errors import DataError


class _FakePool:
    """Un grupo de procesos fingido que codifica en el propio proceso."""

    failure: Exception | None = None
    closed = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if self.failure is not None:
            future.set_exception(self.failure)
        else:
            future.set_result(function(*arguments))
        return future

    def shutdown(self, **_: Any) -> None:
        type(self).closed += 1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> type[_FakePool]:
    class Pool(_FakePool):
        pass

    monkeypatch.setattr("enlace.data.pool.ProcessPoolExecutor", Pool)
    return Pool


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    save_tokenizer(ByteTokenizer(), tmp_path)
    return Encoder(EncoderSettings(tmp_path, False, "text", "uint8"))


def _batches(count: int, taken: list[int]) -> Iterator[list[CorpusDocument]]:
    for number in range(count):
        taken.append(number)
        yield [CorpusDocument("0" * 32, str(number), "a.txt", ())]


def test_no_se_leen_mas_lotes_que_los_que_caben_en_la_cola(
    pool: type[_FakePool], encoder: Encoder
) -> None:
    taken: list[int] = []
    for done, encoded in enumerate(encode_ordered(_batches(50, taken), encoder, 3)):
        assert bytes(encoded.ids.tolist()) == str(done).encode() + b"\0"
        assert len(taken) <= done + 1 + 2 * 3
    assert len(taken) == 50
    assert pool.closed == 1


def test_al_abandonar_a_medias_se_cierra_el_grupo(pool: type[_FakePool], encoder: Encoder) -> None:
    generator = encode_ordered(_batches(50, []), encoder, 2)
    next(generator)
    generator.close()
    assert pool.closed == 1


def test_un_proceso_muerto_es_un_error_con_remedio(pool: type[_FakePool], encoder: Encoder) -> None:
    pool.failure = BrokenProcessPool("muerto")
    with pytest.raises(DataError, match=r"ha muerto.*data\.workers: 1"):
        list(encode_ordered(_batches(3, []), encoder, 2))
    assert pool.closed == 1
