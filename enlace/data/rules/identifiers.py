"""Números que identifican a una persona, con su dígito o letra de control.

Sin control no se tapa nada: un número de ocho cifras y una letra al azar acierta una vez de 23, y
uno de 16 cifras, una de diez.
"""

import re
from collections.abc import Callable
from datetime import date

_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_CURP_ALPHABET = "0123456789ABCDEFGHIJKLMNÑOPQRSTUVWXYZ"
_RFC_ALPHABET = "0123456789ABCDEFGHIJKLMN&OPQRSTUVWXYZ Ñ"
_CARD_LENGTHS = range(13, 20)


def is_dni(number: str) -> bool:
    """Si es un DNI o NIE español con su letra (Real Decreto 1553/2005: resto de dividir por 23)."""
    digits = number[:-1].translate(str.maketrans("XYZ", "012"))
    return digits.isdigit() and _DNI_LETTERS[int(digits) % 23] == number[-1]


def is_iban(number: str) -> bool:
    """Si cumple la ISO 13616: con el país y el control detrás, el resto de dividir por 97 es 1."""
    moved = number[4:] + number[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1


def is_card(number: str) -> bool:
    """Si es un número de tarjeta: longitud, primera cifra y suma de Luhn (ISO/IEC 7812)."""
    if len(number) not in _CARD_LENGTHS or number[0] not in "3456":
        return False
    digits = [int(character) for character in reversed(number)]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + doubled) % 10 == 0


def is_curp(number: str) -> bool:
    """Si es una CURP mexicana: fecha posible y dígito de control."""
    if not _is_date(number[4:10]):
        return False
    total = sum(_CURP_ALPHABET.index(c) * (18 - i) for i, c in enumerate(number[:17]))
    return number[17] == str(-total % 10)


def is_rfc(number: str) -> bool:
    """Si es un RFC mexicano: fecha posible y dígito de control (módulo 11, con A por 10)."""
    padded = number.rjust(13)
    if not _is_date(padded[4:10]):
        return False
    total = sum(_RFC_ALPHABET.index(c) * (13 - i) for i, c in enumerate(padded[:12]))
    return padded[12] == "0123456789A"[-total % 11]


def _is_date(digits: str) -> bool:
    try:
        date(2000 + int(digits[:2]), int(digits[2:4]), int(digits[4:6]))
    except ValueError:
        return False
    return True


# Patrón, comprobación y lo que queda en su lugar. Todos tienen longitud acotada.
IDENTIFIERS: tuple[tuple[re.Pattern[str], Callable[[str], bool], str], ...] = (
    (
        re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
        is_iban,
        "[cuenta bancaria]",
    ),
    (re.compile(r"\b[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d\b"), is_curp, "[documento de identidad]"),
    (re.compile(r"\b[A-ZÑ&]{3,4}\d{6}[A-Z0-9]{2}[0-9A]\b"), is_rfc, "[documento de identidad]"),
    (
        re.compile(
            r"\b(?:(?:\d{8}|[XYZ][- ]?\d{7})[- ]?|\d{1,2}\.\d{3}\.\d{3}-)[A-HJ-NP-TV-Z](?![\w-])"
        ),
        is_dni,
        "[documento de identidad]",
    ),
    (re.compile(r"\d(?<![\w.,-]\d)(?:[ -]?\d){12,18}(?![\w-])"), is_card, "[tarjeta]"),
)
