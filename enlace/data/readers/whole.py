"""Que los comprimidos y los parquet estén enteros, antes de gastar horas en limpiar lo demás."""

from collections.abc import Mapping
from pathlib import Path

from enlace.data.formats import COMPRESSIONS, format_of
from enlace.data.readers.blocks import read_blocks
from enlace.data.readers.table import check_table
from enlace.errors import DataError

_SHOWN = 3


def check_whole(files: Mapping[str, Path]) -> None:
    """Descomprime cada comprimido sin guardar nada y abre cada parquet (nombre → ruta).

    De un parquet sin comprimir solo mira el principio y el final, que es lo que le falta a una
    descarga cortada.

    Raises:
        DataError: alguno está cortado o dañado, o no se puede leer; nombra los primeros.
    """
    problems: dict[str, str] = {}
    for name, path in files.items():
        try:
            if path.suffix.lower() in COMPRESSIONS[1:]:
                for _ in read_blocks(path):
                    pass
            elif format_of(path.name) == "parquet":
                check_table(path)
        except DataError as error:
            problems[name or path.name] = str(error)
    if not problems:
        return
    first, *others = problems
    said = problems[first]
    if others:
        shown = ", ".join(others[:_SHOWN])
        more = f" y {len(others) - _SHOWN} más" if len(others) > _SHOWN else ""
        said += f"; tampoco se pueden leer {shown}{more}"
    raise DataError(said)
