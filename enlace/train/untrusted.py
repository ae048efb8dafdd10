"""Leer ficheros que pudo escribir otro: tamaños acotados, nada de enlaces, JSON sin trampas.

Un checkpoint puede llegar de otra máquina. Aquí no se ejecuta nada de lo que trae: se leen bytes de
ficheros corrientes, se comparan con su resumen y se interpretan como JSON con límites.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

from enlace.errors import CheckpointError, fault_of
from enlace.files import sha256_file

MAX_JSON_BYTES = 1 << 26
MAX_JSON_DEPTH = 64


def check_regular(path: Path) -> os.stat_result:
    """Comprueba que `path` es un fichero corriente, también a través de un enlace.

    Un FIFO o un dispositivo detendrían la lectura para siempre.

    Raises:
        CheckpointError: falta, o es una carpeta, un FIFO o un dispositivo.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} no se puede leer: {fault_of(error)}") from error
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path} no es un fichero corriente")
    return status


def check_name(folder: Path, name: str) -> Path:
    """La ruta de `name` dentro de `folder`.

    Raises:
        CheckpointError: el nombre sale de la carpeta.
    """
    if Path(name).name != name or name in ("", "..") or "\0" in name:
        raise CheckpointError(f"{folder} enumera el fichero {name!r}, que sale de su carpeta")
    return folder / name


def check_no_links(folder: Path) -> None:
    """Comprueba que ni la carpeta ni nada de lo que contiene son enlaces a otro sitio.

    Raises:
        CheckpointError: alguno lo es.
    """
    try:
        entries = [folder, *folder.iterdir()]
    except OSError as error:
        raise CheckpointError(f"{folder} no se puede leer: {fault_of(error)}") from error
    for entry in entries:
        if entry.is_symlink():
            raise CheckpointError(
                f"{entry} es un enlace a otro sitio, y un checkpoint está entero en su carpeta; "
                "pon una copia en su lugar"
            )


def check_digest(path: Path, expected: object) -> None:
    """Compara un fichero con su SHA-256.

    Raises:
        CheckpointError: el fichero falta o no es el que se escribió.
    """
    check_regular(path)
    try:
        found = sha256_file(path)
    except OSError as error:
        raise CheckpointError(f"{path} no se puede leer: {fault_of(error)}") from error
    if found != expected:
        raise CheckpointError(f"{path} está dañado: su SHA-256 no es el que se anotó al escribirlo")


def check_digests(folder: Path, files: object, required: tuple[str, ...]) -> None:
    """Compara con sus SHA-256 los ficheros que enumera `files`, {nombre: resumen}.

    Raises:
        CheckpointError: falta uno de `required`, un nombre sale de la carpeta o algo no coincide.
    """
    if not isinstance(files, dict):
        raise CheckpointError(f"{folder} no enumera sus ficheros")
    for name in required:
        if name not in files:
            raise CheckpointError(f"{folder} no enumera {name} entre sus ficheros")
    for name, digest in files.items():
        check_digest(check_name(folder, name), digest)


def read_bounded(path: Path, limit: int) -> bytes:
    """El contenido de un fichero de `limit` bytes como mucho.

    Raises:
        CheckpointError: falta, no es un fichero corriente o mide más.
    """
    size = check_regular(path).st_size
    try:
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path} no se puede leer: {fault_of(error)}") from error
    if len(content) > limit:
        raise CheckpointError(f"{path} mide {size} bytes, más de {limit}: no es de enlace")
    return content


def read_json_object(path: Path) -> dict[str, Any]:
    """Lee un objeto JSON de tamaño acotado.

    Raises:
        CheckpointError: falta, es desmedido o no es un objeto JSON de los que escribe enlace.
    """
    content = read_bounded(path, MAX_JSON_BYTES)
    try:
        return parse_json_object(content)
    except ValueError as error:
        raise CheckpointError(f"{path} no es JSON de enlace: {error}") from error


def parse_json_object(content: bytes) -> dict[str, Any]:
    """Interpreta un objeto JSON sin claves repetidas, NaN, infinitos ni anidamiento desmedido.

    Con una clave repetida, dos lectores entenderían dos cosas distintas.

    Raises:
        ValueError: no lo es; el mensaje dice por qué.
    """
    try:
        value: Any = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite_float,
        )
    except RecursionError as error:
        raise ValueError("está anidado sin medida") from error
    if not isinstance(value, dict):
        raise ValueError("no es un objeto")
    if _depth(value) > MAX_JSON_DEPTH:
        raise ValueError(f"tiene más de {MAX_JSON_DEPTH} niveles")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"repite la clave {repeated!r}")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"contiene {name}")


def _finite_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"el número {text} no cabe")
    return value


def _depth(value: Any) -> int:
    """Niveles de anidamiento, por capas: una función recursiva tendría el mismo problema."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            item
            for node in level
            for item in (
                node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            )
        ]
    return depth
