"""Datos personales: correos, teléfonos, documentos de identidad, cuentas y tarjetas.

Se dejan, se tapan con una palabra entre corchetes o se descarta el documento. Un número se toma por
teléfono si lleva el prefijo de su país, si está agrupado como los teléfonos de España, México,
Argentina, Colombia, Chile o Perú, o si delante dice que lo es. Los años, precios, leyes, horas e
ISBN no cumplen ninguna de las tres.
"""

import re
from collections.abc import Callable
from functools import partial

from enlace.config.corpus import PersonalDataRule
from enlace.data.documents import Document
from enlace.data.rules.events import Rule, Verdict, map_text
from enlace.data.rules.identifiers import IDENTIFIERS

_EMAIL = re.compile(
    r"(?<![\w.+%-])[\w.+%-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![\w@])"
)
_LONG_NUMBER = re.compile(r"\d[\d .-]{5}")
# Empieza por un conjunto de caracteres y no por una mirada atrás: así la búsqueda salta.
_PHONE = re.compile(r"[+(\d](?<![\w.,/€$+-].)\+?[\d .()-]{5,26}\d(?![\w/%€$]|[.,-]\d)")
_SAID = re.compile(
    r"\b(?:tel[eé]?f?|tel[eé]fonos?|tfno|tlfn?o?|fono|m[oó]vil|cel|celular|whatsapp|fax|contacto|"
    r"ll[aá]m\w{1,6}|comun[ií]\w{2,8})\b[^\w\n]{0,4}(?:\w{1,10}[^\w\n]{1,3}){0,3}$",
    re.IGNORECASE,
)
_YEARS = re.compile(r"1\d{3}[ -]{1,3}(?:1\d|20)\d\d|20\d\d[ -]{1,3}20\d\d")
_BEFORE = 40
# Prefijo de país y cifras nacionales: España, México, Argentina, Colombia, Chile y Perú.
_INTERNATIONAL = re.compile(
    r"(?:34[6-9]\d{8}|52(?:1)?\d{10}|54(?:9)?\d{10}|57\d{10}|56\d{9}|51\d{8,9})"
)
# Agrupaciones que solo usan los teléfonos; «912 345 678» podría ser una cantidad.
_GROUPED = re.compile(
    r"[67]\d\d(?:[ .-]\d\d){3}"  # España, móvil
    r"|[89]\d\d(?:[ .-]\d\d){3}|9[1-8][ .-]\d{3}[ .-]\d\d[ .-]\d\d"  # España, fijo
    r"|\(\d{2,4}\) ?\d{3,4}[ -]\d{4}"  # con el código de zona entre paréntesis
    r"|(?:55|56|33|81)[ -]\d{4}[ -]\d{4}"  # México: las tres ciudades grandes
    r"|0?11[ -]\d{4}-\d{4}|15[ -]\d{4}-\d{4}"  # Buenos Aires
    r"|3\d\d[ -]\d{3}[ -]\d{4}|60\d[ -]\d{3}[ -]\d{4}"  # Colombia
    r"|9[ -]\d{4}[ -]\d{4}|01[ -]\d{3}-\d{4}"  # Chile y Lima
)


def personal_data_rule(config: PersonalDataRule) -> Rule:
    """La fila de la tabla que tapa datos personales o deja fuera los documentos que los llevan."""
    if config.action == "drop":
        return Rule("personal_data", ("dropped",), lambda document: _drop(document, config))
    mask = _masker(config)
    return Rule("personal_data", ("changed",), lambda document: Verdict(map_text(document, mask)))


def _drop(document: Document, config: PersonalDataRule) -> Verdict:
    found: list[str] = []

    def note(kind: str) -> str:
        found.append(kind)
        return kind

    _mask(document.text, config, note)
    return Verdict(document, f"lleva {found[0]}" if found else None)


def _masker(config: PersonalDataRule) -> Callable[[str], str]:
    return lambda text: _mask(text, config, lambda mask: mask)


def _mask(text: str, config: PersonalDataRule, note: Callable[[str], str]) -> str:
    if config.emails and "@" in text:
        text = _EMAIL.sub(lambda _: note("[correo electrónico]"), text)
    if not _LONG_NUMBER.search(text):
        return text
    if config.ids:
        for pattern, check, mask in IDENTIFIERS:
            text = pattern.sub(partial(_checked, check, mask, note), text)
    if config.phones:
        text = _PHONE.sub(lambda match: note("[teléfono]") if _is_phone(match) else match[0], text)
    return text


def _checked(
    check: Callable[[str], bool], mask: str, note: Callable[[str], str], match: re.Match[str]
) -> str:
    return note(mask) if check(re.sub("[ .-]", "", match[0])) else match[0]


def _is_phone(match: re.Match[str]) -> bool:
    written = match[0]
    digits = "".join(character for character in written if character.isdigit())
    if written.startswith(("+", "00", "(+")) and _INTERNATIONAL.fullmatch(digits.lstrip("0")):
        return True
    if _GROUPED.fullmatch(written):
        return True
    if _YEARS.fullmatch(written):
        return False
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    return 7 <= len(digits) <= 13 and _SAID.search(before) is not None
