"""De unos bytes, su codificación: lo que propone chardet, comprobado como español.

Una biblioteca acierta con una página y se equivoca con una frase, y un acierto a medias llena el
corpus de «canciÛn». Por eso lo propuesto compite con las codificaciones que de verdad ha tenido el
español, y gana la que deja cada letra acentuada donde el español la pone.
"""

import codecs
import re
from typing import NamedTuple

from enlace.data.readers.damage import bearable

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # antes que UTF-16, cuya marca es el principio de esta
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
_SPANISH = ("cp1252", "mac_roman", "cp850")
"""Windows (y Latin-1, que es su subconjunto), Mac y MS-DOS; a igualdad, la primera."""
# Lo que otra codificación llama de otra manera sin que en español cambie nada.
_SAME = {"iso8859-1": "cp1252", "cp437": "cp850"}
_WIDE_NULS = 0.2
_MAX_CONTROL = 0.01
_OBVIOUS_SCORE, _OBVIOUS_COUNT = 0.95, 16
_MIN_SCORE = 0.6
_SAMPLE = 1 << 14
_LAST_ASCII = 0x7F
_NOT_ASCII_BYTES = re.compile(rb"[\x80-\xff]")
_LETTERS = "áéíóúüñ"
_UPPER = _LETTERS.upper()
_INNER = "’·"
_EDGE = "¿¡«»“”‘’—–…ºª°·€²³½¼®©™§±×\xa0"
_FOREIGN = "àèìòùâêîôûäëïöçãõýÀÈÌÒÙÂÊÎÔÛÄËÏÖÇÃÕ\xa0"
_NOT_ASCII = re.compile(r"(?s)(?<=(.))?([^\x00-\x7f])(?=(.))?")
_CONTROL = re.compile("[\x00-\x08\x0e-\x19\x1b-\x1f\x7f]")


class Guess(NamedTuple):
    """Una codificación de Python (None: ninguna sirve, y `problem` dice por qué).

    `mark` son los bytes que ocupa la marca BOM.
    """

    encoding: str | None
    problem: str = ""
    mark: int = 0


def guess_encoding(sample: bytes) -> Guess:
    """La codificación de un fichero a partir de su principio, que puede cortar un carácter."""
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return _marked(sample, mark, encoding)
    if wide := _wide(sample):
        return Guess(wide)
    if len(_CONTROL.findall(sample[:_SAMPLE].decode("latin-1"))) > _MAX_CONTROL * len(sample):
        return Guess(None, "no parece texto: está lleno de bytes de control")
    problem = _utf8_problem(sample)
    if problem is None:
        return Guess("utf-8")
    encoding, score = _best(sample)
    if score < _MIN_SCORE and bearable(len(_NOT_ASCII_BYTES.findall(sample)), len(sample)):
        return Guess("utf-8")  # es ASCII con algún byte suelto, que quien lo lea arreglará
    if score < _MIN_SCORE:
        return Guess(
            None, f"no es UTF-8 ({problem}) ni español en otra codificación; conviértelo a UTF-8"
        )
    return Guess(encoding)


def spanish_score(text: str) -> float:
    """De 0 a 1: cuántos caracteres no ASCII están donde los pondría un texto en español.

    Una vocal acentuada o una ñ valen 1; un signo, si está al borde de una palabra; una letra de
    otra lengua latina, tres cuartos. Sin caracteres no ASCII no hay nada que objetar: 1.
    """
    placed = [_placed(*found) for found in _NOT_ASCII.findall(text)]
    return sum(placed) / len(placed) if placed else 1.0


def _placed(before: str, character: str, after: str) -> float:
    if character in _LETTERS or character in _INNER:
        return 1.0
    if character in _UPPER:
        return 0.0 if before.islower() else 1.0
    if character in _EDGE and not (before.isalpha() and after.isalpha()):
        return 1.0
    return 0.75 if character in _FOREIGN else 0.0


def _marked(sample: bytes, mark: bytes, encoding: str) -> Guess:
    if encoding != "utf-8":
        text = _decode(sample[len(mark) :], encoding)
        if text is None or not _readable(text):
            return Guess(None, f"empieza como {encoding} y no lo es; conviértelo a UTF-8")
    return Guess(encoding, mark=len(mark))


def _wide(sample: bytes) -> str | None:
    """UTF-16 o UTF-32 sin marca: el español deja en ellos un NUL en cada carácter."""
    if sample.count(0) < _WIDE_NULS * len(sample):
        return None
    encoding = _proposed(sample[:_SAMPLE])
    text = _decode(sample, encoding) if encoding in _WIDE else None
    return encoding if text is not None and _readable(text) else None


def _readable(text: str) -> bool:
    shown = text[:_SAMPLE]
    return len(_CONTROL.findall(shown)) <= _MAX_CONTROL * len(shown)


def _decode(content: bytes, encoding: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(content)
    except UnicodeDecodeError:
        return None


def _utf8_problem(sample: bytes) -> str | None:
    """Por qué no es UTF-8; None si lo es, o si es UTF-8 con algún byte suelto dañado."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError as error:
        text = sample.decode("utf-8", "replace")
        damaged = text.count("\ufffd")
        accented = sum(1 for character in text if character > "\x7f") - damaged
        if accented <= damaged:
            return f"byte 0x{sample[error.start]:02X} en la posición {error.start}"
    return None


def _best(sample: bytes) -> tuple[str, float]:
    """La codificación de un byte por carácter que mejor le va, y su nota."""
    window = _around_first_accent(sample)
    scores = {encoding: _score(window, encoding) for encoding in _SPANISH}
    best = max(scores, key=lambda encoding: scores[encoding])
    accents = sum(byte > _LAST_ASCII for byte in window)
    if scores[best] < _OBVIOUS_SCORE or accents < _OBVIOUS_COUNT:
        proposed = _proposed(window)
        score = _score(window, proposed)
        # Con pocas tildes todo cabe en todo: a igualdad decide la biblioteca.
        if score >= scores[best]:
            return proposed, score
    return best, scores[best]


def _score(window: bytes, encoding: str) -> float:
    text = _decode(window, encoding) if encoding else None
    return -1.0 if text is None else spanish_score(text)


def _proposed(window: bytes) -> str:
    """Lo que propone chardet, con el nombre de Python; vacío si no propone nada que exista."""
    import chardet

    try:
        name = codecs.lookup(str(chardet.detect(window).get("encoding") or "")).name
    except LookupError:
        return ""
    return _SAME.get(name, name)


def _around_first_accent(sample: bytes) -> bytes:
    first = next((index for index, byte in enumerate(sample) if byte > _LAST_ASCII), 0)
    return sample[max(0, first - 1) : first + _SAMPLE]
