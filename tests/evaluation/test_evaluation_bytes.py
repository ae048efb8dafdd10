import pytest

from enlace.data.tokenizer import ByteTokenizer, TextTokenizer, Tokenizer, train_bpe
from enlace.errors import DataError
from enlace.evaluation.byte_counts import bytes_per_id

TEXTS = [
    "Había una vez un pingüino que vivía en Ushuaia. ¿Quién lo diría? " * 20,
    "El año que viene, si Dios quiere, cosecharemos maíz, cacao y café. " * 20,
]
HARD = ["", "ñ", "👩‍👩‍👧 y 日本語", "<|endoftext|> no es un final", "tab\t y\n\nfin   ", "\x7f\x01"]


@pytest.fixture(scope="module", params=["byte", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "byte":
        return ByteTokenizer()
    return TextTokenizer(train_bpe(TEXTS, 400, 1))


@pytest.mark.parametrize("text", [*TEXTS, *HARD])
def test_los_bytes_de_los_ids_suman_los_del_texto(tokenizer: Tokenizer, text: str) -> None:
    counts = bytes_per_id(tokenizer, tokenizer.vocab_size + 5)
    ids = tokenizer.encode(text)
    assert int(counts[ids].sum()) == len(text.encode("utf-8"))


def test_ni_el_separador_ni_las_filas_de_sobra_son_texto(tokenizer: Tokenizer) -> None:
    counts = bytes_per_id(tokenizer, tokenizer.vocab_size + 5)
    assert counts[tokenizer.eos_id] == 0
    assert counts[-5:].tolist() == [0] * 5
    special = 16 if tokenizer.kind == "bpe" else 1
    assert (counts[:special] == 0).all()
    assert (counts[special:-5] > 0).all()


def test_un_tokenizador_mayor_que_el_modelo_se_rechaza_con_los_dos_numeros() -> None:
    with pytest.raises(DataError, match=r"256 ids .*model\.vocab_size=200"):
        bytes_per_id(ByteTokenizer(), 200)
