"""Los dos tokenizadores, con la misma superficie: BPE por bytes y bytes a secas.

El texto que parece un token especial ("<|endoftext|>") se codifica siempre como texto corriente:
un documento no puede falsificar un final ni un turno. Los ids especiales los pone el programa.
"""

import codecs
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import pre_tokenizers
from tokenizers.decoders import DecodeStream

from enlace.config.schema import BYTE_VOCABULARY
from enlace.data.bpe import (
    END_OF_TEXT,
    SPECIAL_TOKENS,
    TURN_END,
    TURN_START,
    check_layout,
    train_bpe,
)
from enlace.errors import DataError
from enlace.files import write_text

TOKENIZER_FILE = "tokenizer.json"
Ids = npt.NDArray[np.uint32]
TokenizerKind = Literal["byte", "bpe"]

__all__ = [
    "TOKENIZER_FILE",
    "ByteTokenizer",
    "TextTokenizer",
    "Tokenizer",
    "load_tokenizer",
    "train_bpe",
]


class Tokenizer(Protocol):
    """Lo que el resto del programa usa de un tokenizador.

    `vocab_size` son los ids que existen (el modelo puede tener más filas); `fingerprint`, el
    SHA-256 de su `tokenizer.json`.
    """

    kind: TokenizerKind
    vocab_size: int
    eos_id: int
    fingerprint: str

    def encode(self, text: str) -> list[int]:
        """Los ids de `text`, sin especiales."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Los ids de cada texto."""

    def encode_arrays(self, texts: Sequence[str]) -> list[Ids]:
        """Como `encode_batch`, en vectores uint32."""

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """El texto de unos ids; los bytes que no forman UTF-8 salen como U+FFFD."""

    def decode_begun(self, ids: Iterable[int]) -> str:
        """Como `decode`, para un texto que sigue: sin el carácter que al final quede a medias."""

    def to_json(self) -> str:
        """El contenido de su `tokenizer.json`, en el formato de HF `tokenizers`."""


class TextTokenizer:
    """BPE por bytes de Hugging Face; la referencia de los codificadores rápidos."""

    kind: TokenizerKind = "bpe"

    def __init__(self, content: str, where: str = TOKENIZER_FILE) -> None:
        """Construye desde el texto de un `tokenizer.json`; `where` lo nombra en los errores."""
        try:
            self._tokenizer = HFTokenizer.from_str(content)
        except Exception as error:  # la biblioteca lanza Exception a secas
            raise DataError(
                f"{where} no es un tokenizador ({error}); vuelve a entrenarlo (dvc repro tokenize)"
            ) from error
        check_layout(self._tokenizer, where)
        self._tokenizer.encode_special_tokens = True  # no se guarda en el fichero
        self._content = content
        self.vocab_size: int = self._tokenizer.get_vocab_size()
        # `check_layout` ha comprobado que los especiales ocupan los primeros ids, en este orden.
        self.eos_id = SPECIAL_TOKENS.index(END_OF_TEXT)
        self.turn_start_id = SPECIAL_TOKENS.index(TURN_START)
        self.turn_end_id = SPECIAL_TOKENS.index(TURN_END)
        self._symbols = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
        self.fingerprint = hashlib.sha256(content.encode("utf-8")).hexdigest()

    @classmethod
    def load(cls, path: Path) -> "TextTokenizer":
        """Carga un `tokenizer.json` (o la carpeta que lo contiene)."""
        path = path / TOKENIZER_FILE if path.is_dir() else path
        return cls(_read(path), str(path))

    def encode(self, text: str) -> list[int]:
        """Los ids de `text`; lo que parezca un token especial es texto corriente."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Los ids de cada texto, con los hilos de la biblioteca."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def encode_arrays(self, texts: Sequence[str]) -> list[Ids]:
        """Como `encode_batch`, en vectores uint32."""
        return [np.array(ids, dtype=np.uint32) for ids in self.encode_batch(texts)]

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """El texto de unos ids. Los que sobran del vocabulario del modelo no dicen nada."""
        known = [identifier for identifier in ids if identifier < self.vocab_size]
        return str(self._tokenizer.decode(known, skip_special_tokens=skip_special))

    def decode_begun(self, ids: Iterable[int]) -> str:
        """El texto de unos ids, sin el carácter que al final quede a medias."""
        return _begun(b"".join(self._bytes_of(each) for each in ids if each < self.vocab_size))

    def decode_step(self, stream: DecodeStream, identifier: int) -> str:
        """El texto que añade un id más; vacío mientras un carácter esté a medias."""
        return stream.step(self._tokenizer, identifier) or ""

    def _bytes_of(self, identifier: int) -> bytes:
        token = str(self._tokenizer.id_to_token(identifier))
        if identifier < len(SPECIAL_TOKENS):
            return token.encode("utf-8")
        return bytes(self._symbols[symbol] for symbol in token)

    def to_json(self) -> str:
        """El contenido de su `tokenizer.json`."""
        return self._content


class ByteTokenizer:
    """Un id por byte. El separador es NUL (0), que el texto limpio no contiene nunca."""

    kind: TokenizerKind = "byte"
    vocab_size = BYTE_VOCABULARY
    eos_id = 0

    def __init__(self) -> None:
        self.fingerprint = hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Los bytes UTF-8 de `text`."""
        return list(self._bytes(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Los bytes UTF-8 de cada texto."""
        return [self.encode(text) for text in texts]

    def encode_arrays(self, texts: Sequence[str]) -> list[Ids]:
        """Como `encode_batch`, en vectores uint32."""
        return [np.frombuffer(self._bytes(t), dtype=np.uint8).astype(np.uint32) for t in texts]

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """El texto de unos bytes; con `skip_special`, sin los separadores."""
        content = bytes(ids)
        if skip_special:
            content = content.replace(b"\0", b"")
        return content.decode("utf-8", errors="replace")

    def decode_begun(self, ids: Iterable[int]) -> str:
        """El texto de unos bytes, sin el carácter que al final quede a medias."""
        return _begun(bytes(ids))

    def to_json(self) -> str:
        """Un `tokenizer.json` de HF equivalente: BPE por bytes sin ninguna fusión."""
        pre_tokenizer = {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False
        }  # fmt: skip
        content: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": pre_tokenizer,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {symbol: byte for byte, symbol in enumerate(byte_symbols())},
                "merges": [],
            },
        }
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"

    @staticmethod
    def _bytes(text: str) -> bytes:
        content = text.encode("utf-8")
        if b"\0" in content:
            raise DataError(
                f"el texto contiene NUL en el byte {content.index(0)}, que con kind=byte separa "
                "documentos; límpialo antes (dvc repro corpus)"
            )
        return content


def load_tokenizer(folder: Path) -> TextTokenizer | ByteTokenizer:
    """El tokenizador guardado en `folder/tokenizer.json`, sea BPE o de bytes.

    Raises:
        DataError: falta o no es uno de los nuestros.
    """
    path = folder / TOKENIZER_FILE
    content = _read(path)
    byte = ByteTokenizer()
    return byte if content == byte.to_json() else TextTokenizer(content, str(path))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Escribe `folder/tokenizer.json`, entero o nada."""
    write_text(folder / TOKENIZER_FILE, tokenizer.to_json())


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise DataError(f"falta {path}; entrena el tokenizador (dvc repro tokenize)") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} no es UTF-8; vuelve a entrenarlo (dvc repro tokenize)") from error


def _begun(content: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content)


def byte_symbols() -> list[str]:
    """El carácter con que ByteLevel escribe cada byte, en orden de byte.

    Los bytes imprimibles de Latin-1 se escriben solos; los demás, desde U+0100 y en orden (GPT-2,
    `bytes_to_unicode`).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    symbols = [chr(b) if b in printable else chr(next(hidden)) for b in range(BYTE_VOCABULARY)]
    if set(symbols) != set(pre_tokenizers.ByteLevel.alphabet()):  # pragma: no cover
        raise AssertionError("el alfabeto de ByteLevel ha cambiado")
    return symbols
