"""Leer una configuración guardada por una versión anterior, que tenía menos claves.

Un modelo de hace meses debe poder abrirse, y un entrenamiento, seguir, con el código de hoy. Cada
clave que nace después de la primera versión se apunta en `ADDED_LATER` con el valor que hace lo
mismo que antes de que existiera. Con él se completa lo guardado, y con él la clave no entra en las
huellas: las de antes siguen valiendo.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

ADDED_LATER: dict[str, Any] = {
    # Todas las columnas: el mayor vocabulario que admite la configuración.
    "hardware.loss_chunk_columns": 1 << 16,
    "hardware.host_allocator": "system",
}


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` con las claves que aún no existían cuando se guardó."""
    full = deepcopy(dict(values))
    for key, value in ADDED_LATER.items():
        section, leaf = _section(full, key)
        if section is not None:
            section.setdefault(leaf, value)
    return full


def as_before(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` sin las claves que hacen lo mismo que antes de que existieran."""
    short = deepcopy(dict(values))
    for key, value in ADDED_LATER.items():
        section, leaf = _section(short, key)
        if section is not None and section.get(leaf) == value:
            del section[leaf]
    return short


def _section(values: dict[str, Any], key: str) -> tuple[dict[str, Any] | None, str]:
    """El diccionario que tiene o tendría esa clave, o None, y el último nombre de la clave."""
    *parents, leaf = key.split(".")
    section: Any = values
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    return (section if isinstance(section, dict) else None), leaf
