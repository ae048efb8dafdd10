"""Codificación en hilos: orden, tope de lotes pendientes y ningún hilo al acabar."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from enlace.data.corpus import CorpusDocument
from enlace.data.encode import EncodedBatch, Encoder, EncoderSettings
from enlace.data.tokenizer import ByteTokenizer, save_tokenizer
from enlace.data.workers import encode_ordered
from enlace.errors import DataError


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    save_tokenizer(ByteTokenizer(), tmp_path)
    return Encoder(EncoderSettings(tmp_path, False, "text", "uint8"))


def _batches(count: int, taken: list[int]) -> Iterator[list[CorpusDocument]]:
    for number in range(count):
        taken.append(number)
        yield [CorpusDocument("0" * 32, str(number), "a.txt", ())]


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("encode")]


@pytest.mark.parametrize(("workers", "pending"), [(1, 0), (2, 2), (4, 6)])
def test_sale_en_orden_y_no_se_lee_mas_de_lo_que_cabe_en_la_cola(
    encoder: Encoder, workers: int, pending: int
) -> None:
    taken: list[int] = []
    for done, encoded in enumerate(encode_ordered(_batches(50, taken), encoder, workers)):
        assert bytes(encoded.ids.tolist()) == str(done).encode() + b"\0"
        assert len(taken) <= done + 1 + pending
    assert len(taken) == 50
    assert _threads() == []


def test_al_abandonar_a_medias_no_queda_ningun_hilo(encoder: Encoder) -> None:
    taken: list[int] = []
    generator = encode_ordered(_batches(50, taken), encoder, 3)
    next(generator)
    assert len(_threads()) == 2
    generator.close()
    assert _threads() == []
    assert len(taken) < 50


def test_un_fallo_al_codificar_sale_en_su_turno(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Encoder.encode

    def fails_on_seven(self: Encoder, documents: list[CorpusDocument]) -> EncodedBatch:
        if documents[0].text == "7":
            raise DataError("el siete no")
        return honest(self, documents)

    monkeypatch.setattr(Encoder, "encode", fails_on_seven)
    encoded = encode_ordered(_batches(50, []), encoder, 3)
    served = [bytes(next(encoded).ids.tolist()[:-1]).decode() for _ in range(7)]
    assert served == [str(number) for number in range(7)]
    with pytest.raises(DataError, match="el siete no"):
        next(encoded)
    assert _threads() == []
