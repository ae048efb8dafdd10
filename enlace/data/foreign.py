"""Tokenizadores de otros, solo para comparar: `tokenizer.json` de Hugging Face y `tekken.json`."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from enlace.data.sampling import sample_texts
from enlace.data.tokenizer import byte_symbols, load_tokenizer
from enlace.data.vocabulary import MEASURED_BYTES, measure
from enlace.errors import DataError, fault_of

_OURS = "este"


class ForeignTokenizer:
    """Un tokenizador ajeno: cuántos ids tiene y los de un texto, sin especiales."""

    def __init__(self, tokenizer: HFTokenizer) -> None:
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.vocab_size: int = tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Los ids de `text`; lo que parezca un token especial es texto corriente."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def compare_tokenizers(
    corpus_dir: Path, tokenizer_dir: Path, others: Sequence[Path]
) -> list[dict[str, Any]]:
    """Mide el tokenizador propio y otros sobre la misma muestra de validación.

    Una fila por tokenizador, el propio primero: `name`, `vocab_size` y lo que mide `measure`.

    Raises:
        DataError: falta el corpus o el tokenizador, o un fichero no es un tokenizador.
    """
    ours = load_tokenizer(tokenizer_dir)
    foreign = [(_name(path), load_foreign(path)) for path in others]
    return [
        {"name": name, "vocab_size": tokenizer.vocab_size}
        | measure(tokenizer, sample_texts(corpus_dir, "val", MEASURED_BYTES))
        for name, tokenizer in ((_OURS, ours), *foreign)
    ]


def load_foreign(path: Path) -> ForeignTokenizer:
    """Lee un `tokenizer.json` (o la carpeta que lo tiene) o un `tekken.json`.

    Raises:
        DataError: no está o no es ninguno de los dos.
    """
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        content = path.read_text("utf-8")
        document = json.loads(content)
        tekken = "model" not in document
        return ForeignTokenizer(_tekken(document) if tekken else HFTokenizer.from_str(content))
    except OSError as error:
        raise DataError(f"no se puede leer {path} ({fault_of(error)}); revisa la ruta") from error
    except Exception as error:  # tokenizers lanza Exception a secas
        raise DataError(
            f"{path} no es un tokenizer.json de Hugging Face ni un tekken.json ({error!r}); "
            "da uno de los dos"
        ) from error


def _tekken(document: dict[str, Any]) -> HFTokenizer:
    """El BPE de un `tekken.json`: los rangos de tiktoken, escritos como fusiones.

    Con rangos se une la pareja cuyo resultado tenga el menor; así que todo corte de un token en
    otros dos es una fusión, por orden de rango. Si el trozo entero está en el vocabulario, es él.
    """
    config = document["config"]
    count = config["default_vocab_size"] - config["default_num_special_tokens"]
    symbols = byte_symbols()
    vocabulary: dict[str, int] = {}
    merges: list[tuple[str, str]] = []
    for entry in sorted(document["vocab"], key=lambda each: int(each["rank"]))[:count]:
        token = "".join(symbols[byte] for byte in base64.b64decode(entry["token_bytes"]))
        splits = ((token[:place], token[place:]) for place in range(1, len(token)))
        merges += [pair for pair in splits if pair[0] in vocabulary and pair[1] in vocabulary]
        vocabulary[token] = int(entry["rank"])
    tokenizer = HFTokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(config["pattern"]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _name(path: Path) -> str:
    return path.parent.name if path.name == "tokenizer.json" else path.stem
