"""Palabras que delatan al gallego y al asturiano, las lenguas que más se parecen al español.

Son palabras gramaticales y formas muy frecuentes que el español no usa. Un texto español puede
traer una suelta; dos o más en pocas palabras, no.
"""

import re
from typing import NamedTuple

from enlace.data.rules.phrases import words

_GALICIAN = words(
    """unha unhas dun dunha duns dunhas ao aos do das nas nunha nunhas non é máis moi tamén hai
    teñen foi foron súa súas seus isto iso polas coa coas cando onde xa outro outra outros
    outras moito moitos moita moitas pode fixo lle lles aínda despois dous dúas houbo hoxe boa bo
    onte nós algúns algunhas ningunha xeito xente tiña tiñan fixeron fixo dixo dixeron fai facer
    feito feita facendo sendo tampouco pouco pouca poucos alí trala auga destes destas nestes nestas
    nese nesa aquilo quen cuxo cuxa cuxos xunto mentres porén entón enriba moitas maiores
    mellores novos viaxe viaxes linguaxe imaxe orixe virxe"""
)
_ASTURIAN = words(
    """ye yera yeren foi foron tán taba taben tien nun nuna nel pel pela peles pal
    pola llos dellos delles dalgún dalguna dalgunos dalgunes munchu munches
    xente xeneral mesmu otru tou tolos toles tola ensin namás tamién fai faen facer fechu
    depués dempués entós güei añu esti esi seya sía sían darréu ellí equí yá fonte fueya entá
    tovía tamos tando tean conxuntu nueche muyer muyeres homes fíu pueblu xuntu cuerpu
    tiempu güelu llau llargu principiu puestu mundu llunes xueves nomáu teníen facíen podíen habíen
    teníen taríen sedría foren punxo punxeron fexo fixeron quixo quixeron dalgo"""
)
_NEIGHBOURS = _GALICIAN | _ASTURIAN
# También las dice el habla popular: cuentan solo si hay otra pista.
_POPULAR = frozenset(("na", "pa", "ta"))
# El asturiano tiene algunas; las demás lenguas vecinas, casi ninguna.
_SPANISH = words(
    """y los las muy hay fue pero hasta más está están también sin cuando donde porque había desde
    según ellos entonces después aunque puede pueden deben tiene tienen sus hacer hace otro
    otra otros otras mucho mucha muchos muchas poco mismo misma ahora aquí allí dijo fueron eran
    sino usted ustedes nuestro nuestra siempre nunca mientras luego año años vez veces ya hacia
    cualquier ella ellas hombre hombres mujer mujeres yo él esto eso quien algo nada"""
)
# Artículo o pronombre femenino plural en -es delante de una palabra en -es: «les muyeres».
_FEMININE = re.compile(r"\b(?:les|peles|munches|unes|delles) \w+es\b")
_FEMININE_STARTS = words("les peles munches unes delles")
_WORD = re.compile(r"[A-Za-zÀ-ÿ]+(?:['’][A-Za-zÀ-ÿ]+)?")
_ELISION = re.compile(r"(?:d|l|n|p|s|m|t|qu)['’]\w|\w+['’]l$")
# Ante vocal, gallego y asturiano escriben «x» donde el español escribe «g» o «j».
_X_START = re.compile(r"x[aeiouáéíóú][a-záéíóúñ]{2,}$")
_SPANISH_X = re.compile(r"x(?:eno|ilo|iló|er[oó])")
_SPANISH_U = words("tribu espíritu ímpetu menú perú bambú tabú")


class Cues(NamedTuple):
    """Cuántas palabras tiene un texto y cuántas hablan de una lengua."""

    words: int
    spanish: int
    galician: int
    asturian: int


def cues(text: str) -> Cues:
    """Las pistas de un texto. Los nombres propios y las siglas no cuentan."""
    found = _WORD.findall(text)
    spanish = galician = asturian = popular = 0
    for word in found:
        if word in _SPANISH:
            spanish += 1
        elif word in _NEIGHBOURS:
            galician += word in _GALICIAN
            asturian += word in _ASTURIAN
        elif word in _POPULAR:
            popular += 1
        elif word[0] == "x":
            shared = _X_START.match(word) is not None and not _SPANISH_X.match(word)
            galician += shared
            asturian += shared
        elif word[-1] == "u" or not word.isalpha():
            asturian += _looks_asturian(word)
    if not _FEMININE_STARTS.isdisjoint(found):
        asturian += len(_FEMININE.findall(text))
    return Cues(
        len(found),
        spanish,
        galician + popular if galician else 0,
        asturian + popular if asturian else 0,
    )


def _looks_asturian(word: str) -> bool:
    """Un masculino en -u («mundu») o una elisión («d'esti», «pa'l»)."""
    if not word.isalpha():
        return _ELISION.match(word) is not None
    return len(word) > 3 and word[-2] not in "aeioq" and word.islower() and word not in _SPANISH_U
