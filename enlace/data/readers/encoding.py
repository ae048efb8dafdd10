"""En qué codificación está un fichero, y su contenido en UTF-8.

Con `data.on_bad_bytes` = detect se decide una vez por fichero, con su primer mebibyte (si es todo
ASCII, con el primero que no lo sea). Con skip y fail todo se toma por UTF-8.
"""

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from enlace.data.readers.blocks import read_blocks
from enlace.data.readers.guess import guess_encoding

_WINDOW = 1 << 20
_BOM = codecs.BOM_UTF8
_DAMAGE = b"\xff"
"""Un byte que ningún UTF-8 lleva: señala en lo traducido lo que no se pudo traducir."""


class Opened(NamedTuple):
    """Un fichero abierto: su codificación, dónde empieza el texto y sus bloques en UTF-8.

    Si `encoding` es None no se sabe leer, `problem` dice por qué y `blocks` va crudo.
    """

    encoding: str | None
    problem: str
    offset: int
    blocks: Iterator[bytes]


def open_text(path: Path, on_bad_bytes: str) -> Opened:
    """Abre un fichero de texto, quita la marca BOM y lo traduce a UTF-8 según se lee.

    Un byte que la codificación no tiene sale como un byte inválido en UTF-8, para que el registro
    que lo contiene se rechace y los demás no.

    Raises:
        DataError: no se puede abrir, o (al leer los bloques) el comprimido está dañado.
    """
    stream = read_blocks(path)
    head, taken = [], 0
    for block in stream:
        head.append(block)
        taken += len(block)
        if taken >= _WINDOW:
            break
    sample = b"".join(head)
    blocks = chain([sample], stream) if sample else iter(())
    if on_bad_bytes != "detect":
        return _utf8(sample, blocks)
    guess = guess_encoding(sample)
    if guess.encoding == "utf-8" and taken >= _WINDOW and sample.isascii():
        guess = guess_encoding(_first_window(path))
    if guess.encoding is None:
        return Opened(None, guess.problem, 0, blocks)
    if guess.encoding == "utf-8":
        return _utf8(sample, blocks)
    return Opened(guess.encoding, "", guess.mark, _translated(blocks, guess.encoding, guess.mark))


def _utf8(sample: bytes, blocks: Iterator[bytes]) -> Opened:
    mark = len(_BOM) if sample.startswith(_BOM) else 0
    return Opened("utf-8", "", mark, _skip(blocks, mark))


def _first_window(path: Path) -> bytes:
    """El primer tramo del fichero que no es todo ASCII, o nada."""
    window: list[bytes] = []
    taken = 0
    for block in read_blocks(path):
        if window or not block.isascii():
            window.append(block)
            taken += len(block)
        if taken >= _WINDOW:
            break
    return b"".join(window)


def _skip(blocks: Iterator[bytes], count: int) -> Iterator[bytes]:
    for block in blocks:
        kept = block[count:]
        count = max(0, count - len(block))
        if kept:
            yield kept


def _translated(blocks: Iterable[bytes], encoding: str, mark: int) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    for block in chain(_skip(iter(blocks), mark), (None,)):
        content, final = (b"", True) if block is None else (block, False)
        try:
            output = decoder.decode(content, final).encode("utf-8")
        except (UnicodeDecodeError, UnicodeEncodeError):
            decoder.errors = "replace"
            output = decoder.decode(content, final).encode("utf-8", "replace")
            output = output.replace("\ufffd".encode(), _DAMAGE)
            decoder.errors = "strict"
        if output:
            yield output
