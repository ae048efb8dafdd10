"""De qué conviene enterarse antes de entrenar con un corpus."""

from collections.abc import Mapping
from typing import Any

from enlace.config.schema import DataConfig
from enlace.figures import number, percent

_MOST = 0.5
"""Parte de los documentos que, si la quita una sola regla, merece una mirada."""
_UNEVEN = 2.0
"""Veces que validación puede alejarse de `data.val_fraction` sin que se diga."""
_SMALL_BYTES = 10_000_000


def warnings_of(report: Mapping[str, Any], data: DataConfig) -> list[str]:
    """Los avisos de un informe del corpus, cada uno en una frase."""
    return [
        *_emptied(report),
        *_split(report, data),
        *_contamination(report),
        *_repeated(report, data),
        *_licenses(report),
        *_small(report),
    ]


def _emptied(report: Mapping[str, Any]) -> list[str]:
    read = report["read"]["documents"]
    found = [
        f"casi todo se ha ido por {rule}: {tally['documents']} de {read} documentos"
        for rule, tally in report["dropped"].items()
        if tally["documents"] > _MOST * max(read, 1)
    ]
    return found + [
        f"de la fuente «{name}» no queda ningún documento de los {flow['read']['documents']}"
        for name, flow in report["sources"].items()
        if flow["read"]["documents"] and not flow["kept"]["documents"]
    ]


def _split(report: Mapping[str, Any], data: DataConfig) -> list[str]:
    val, train = (report["splits"][name]["bytes"] for name in ("val", "train"))
    share = val / max(val + train, 1)
    if data.val_fraction / _UNEVEN <= share <= data.val_fraction * _UNEVEN:
        return []
    return [
        f"validación lleva el {percent(share, 2)} del texto y data.val_fraction pide el "
        f"{percent(data.val_fraction, 2)}: hay pocos documentos o algunos son enormes"
    ]


def _contamination(report: Mapping[str, Any]) -> list[str]:
    contamination = report["contamination"]
    if contamination["action"] != "report" or not contamination["found"]:
        return []
    return [
        "documentos con textos de evaluación que siguen en el corpus: "
        f"{contamination['documents']} (data.contamination.action: report)"
    ]


def _repeated(report: Mapping[str, Any], data: DataConfig) -> list[str]:
    unsplit = report["duplicates"]["unsplit"]
    if data.dedup.near or not unsplit:
        return []
    return [
        f"documentos que se parecen a otro y siguen en el corpus, en su misma parte: {unsplit} "
        "(data.dedup.near: false)"
    ]


def _licenses(report: Mapping[str, Any]) -> list[str]:
    unknown = report["licenses"].get("", {"documents": 0})["documents"]
    if not unknown:
        return []
    return [
        f"documentos sin licencia conocida: {unknown}; ponla en data.sources o di qué columna la "
        "trae (data.license_column)"
    ]


def _small(report: Mapping[str, Any]) -> list[str]:
    size = report["splits"]["train"]["epoch_bytes"]
    if size >= _SMALL_BYTES:
        return []
    return [
        f"hay {number(size / 1e6, 1)} MB de texto para entrenar: da para probar que todo funciona, "
        "no para que un modelo aprenda a escribir"
    ]
