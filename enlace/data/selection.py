"""Qué ficheros de la carpeta de origen entran, en un orden que no depende del disco."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from enlace.config.corpus import SourceConfig
from enlace.data.documents import Rejection
from enlace.data.formats import refusal
from enlace.errors import DataError, fault_of

# Con `cache.type = symlink` DVC deja en data/raw enlaces a su caché, que está fuera de la carpeta.
# Esas rutas llevan el MD5 del contenido, así que no son una puerta a ficheros cualesquiera.
_DVC_OBJECT = re.compile(r"/files/md5/[0-9a-f]{2}/[0-9a-f]{30}$")


class Selection(NamedTuple):
    """Los ficheros elegidos, relativos a la carpeta, y los que un patrón nombra sin que sirvan."""

    files: tuple[str, ...]
    refused: tuple[Rejection, ...]


def select_files(
    source_dir: Path,
    include: tuple[str, ...],
    extensions: tuple[str, ...],
    exclude: tuple[str, ...] = (),
    key: str = "data.include",
) -> Selection:
    """Elige los ficheros de `source_dir` que casan con algún patrón de `include`.

    Los que casan con alguno de `exclude` es como si no estuvieran. `key` es la clave de `include`,
    para los mensajes.

    Los patrones son relativos y entienden `*`, `?`, `[...]` y `**`. Lo oculto (empieza por punto)
    nunca entra. El resultado va ordenado por la ruta en código Unicode, igual en toda máquina.

    Raises:
        DataError: no existe la carpeta, nada casa, un nombre no es UTF-8, o un enlace sale de la
            carpeta o está roto.
    """
    if not source_dir.is_dir():
        raise DataError(
            f"no existe la carpeta de texto {source_dir}; créala (make corpus SRC=...) "
            "o cambia data.source"
        )
    wanted, unwanted = (
        [re.compile(glob_to_regex(pattern)) for pattern in patterns]
        for patterns in (include, exclude)
    )
    matched = [
        name
        for name in _walk(source_dir)
        if any(pattern.match(name) for pattern in wanted)
        and not any(pattern.match(name) for pattern in unwanted)
    ]
    files, refused = [], []
    for name in sorted(matched):
        problem = _refuse(source_dir, name, extensions)
        if problem is None:
            files.append(name)
        else:
            refused.append(problem)
    if not files:
        raise DataError(_nothing_matched(source_dir, include, refused, extensions, key))
    return Selection(tuple(files), tuple(refused))


def assign_sources(selection: Selection, sources: tuple[SourceConfig, ...]) -> tuple[int, ...]:
    """Para cada fichero elegido, la primera entrada de `sources` con la que casa, o −1.

    Raises:
        DataError: una entrada no se queda con ningún fichero, o dos se llaman igual.
    """
    compiled = [
        [re.compile(glob_to_regex(pattern)) for pattern in source.include] for source in sources
    ]

    def claims(name: str) -> list[int]:
        return [
            index
            for index, patterns in enumerate(compiled)
            if any(pattern.match(name) for pattern in patterns)
        ]

    claimed = [claims(name) for name in selection.files]
    origins = tuple(indices[0] if indices else -1 for indices in claimed)
    names = [source.name for source in sources]
    for index, source in enumerate(sources):
        if index in origins:
            continue
        patterns = ", ".join(source.include)
        rival = next((indices[0] for indices in claimed if index in indices), None)
        refused = next((r for r in selection.refused if index in claims(r.source)), None)
        if rival is not None:
            reason = f"ya están en {names[rival]}, que va antes; pon primero la más concreta"
        elif refused is not None:
            reason = f"no se pueden leer ({refused.source}: {refused.detail})"
        else:
            reason = "no hay; corrige los patrones, amplía data.include o quita la entrada"
        raise DataError(f"data.sources, «{source.name}»: los ficheros de {patterns} {reason}")
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"data.sources nombra dos veces «{repeated}»; cambia uno de los nombres")
    return origins


def glob_to_regex(pattern: str) -> str:
    """Traduce un patrón de rutas POSIX a una expresión regular anclada.

    `**/` es cualquier número de carpetas (también ninguna); `*` y `?` no cruzan `/`.
    """
    pieces: list[str] = []
    position = 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            pieces.append("(?:[^/]+/)*")
            position += 3
        elif rest.startswith("**"):
            pieces.append(".*")
            position += 2
        elif bracket := re.match(r"\[(!?)([^\]/]+)\]", rest):
            negation = "^" if bracket[1] else ""
            members = bracket[2].replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
            pieces.append(f"(?!/)[{negation}{members}]")
            position += bracket.end()
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0])))
            position += 1
    return "(?s:" + "".join(pieces) + r")\Z"


def _walk(source_dir: Path) -> list[str]:
    def fail(error: OSError) -> None:
        raise DataError(f"no se puede leer la carpeta {error.filename}: {fault_of(error)}")

    names = []
    for folder, folders, files in os.walk(source_dir, onerror=fail):
        base = Path(folder)
        for name in folders:
            if not name.startswith(".") and (base / name).is_symlink():
                raise DataError(
                    f"{base / name} es un enlace a una carpeta y no se sigue; copia los ficheros "
                    f"dentro de {source_dir}"
                )
        folders[:] = [name for name in folders if not name.startswith(".")]
        names += [
            (base / name).relative_to(source_dir).as_posix()
            for name in files
            if not name.startswith(".")
        ]
    return names


def _refuse(source_dir: Path, name: str, extensions: tuple[str, ...]) -> Rejection | None:
    path = source_dir / name
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "replace")
        raise DataError(f"{shown}: el nombre no es UTF-8; renómbralo") from None
    if path.is_symlink():
        _check_link(source_dir, path)
    if not path.is_file():
        return Rejection("unknown_format", name, "no es un fichero corriente", 0)
    if not name.lower().endswith(extensions):
        return Rejection("unknown_format", name, refusal(name), path.stat().st_size)
    return None


def _check_link(source_dir: Path, path: Path) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise DataError(f"el enlace {path} está roto; bórralo o arréglalo") from error
    inside = target.is_relative_to(source_dir.resolve())
    if not inside and not _DVC_OBJECT.search(target.as_posix()):
        raise DataError(
            f"el enlace {path} lleva fuera de {source_dir} (a {target}); copia el fichero dentro"
        )


def _nothing_matched(
    source_dir: Path,
    include: tuple[str, ...],
    refused: list[Rejection],
    extensions: tuple[str, ...],
    key: str,
) -> str:
    globs = ", ".join(include)
    if refused:
        first = f"{refused[0].source}: {refused[0].detail}"
        return (
            f"ninguno de los {len(refused)} ficheros de {source_dir} que casan con "
            f"{key} ({globs}) se puede leer ({first}); se leen {', '.join(extensions)}"
        )
    return (
        f"ningún fichero de {source_dir} casa con {key} ({globs}); "
        "corrige los patrones o añade texto"
    )
