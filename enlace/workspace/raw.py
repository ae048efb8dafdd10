"""Traer texto a `data/raw/`: comprobar todo antes, copiar entero o nada, y apuntarlo en DVC.

Se copia y no se enlaza: DVC deja de solo lectura los ficheros que guarda, y con un enlace duro
dejaría de solo lectura el original de quien lo trajo.
"""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from enlace.config.yaml_io import read_yaml
from enlace.data.formats import extensions
from enlace.data.readers.survey import Survey, survey_files
from enlace.data.readers.whole import check_whole
from enlace.errors import DataError, fault_of
from enlace.figures import size
from enlace.files import atomic_dir, atomic_file, remove_temporaries, sha256_file
from enlace.paths import RAW
from enlace.workspace.project import run_dvc

_SHOWN_REASONS = 8


class Source(NamedTuple):
    """Una fuente comprobada: de dónde sale cada fichero y cómo se llama dentro de la copia."""

    path: Path
    files: dict[str, Path]
    """Ruta relativa dentro de la carpeta → fichero; una sola clave vacía si es un fichero."""
    skipped: int
    """Ficheros y carpetas ocultos que se dejan fuera."""
    survey: Survey
    """Qué leerá la etapa corpus de todo eso y qué no."""

    @property
    def size(self) -> int:
        """Bytes que ocupará la copia."""
        return sum(file.stat().st_size for file in self.files.values())


class Imported(NamedTuple):
    """Lo que hizo una importación."""

    copied: list[Source]
    present: list[Source]
    """Fuentes que ya estaban en `data/raw/`, idénticas."""


def require_text(source: str, root: Path) -> None:
    """Comprueba que hay texto antes de que DVC gaste un preflight en descubrir que no.

    Raises:
        DataError: el run lee `data/raw` y allí ni hay texto ni está apuntado para traerlo.
    """
    pointer = (root / RAW).with_suffix(".dvc")
    if Path(source) == RAW and not pointer.is_file() and not (root / RAW).is_dir():
        raise DataError(
            f"{RAW} no tiene texto todavía; trae el tuyo con `make corpus SRC=carpeta`, o el del "
            "run con `make corpus`"
        )


def split_sources(arguments: Sequence[str], base: Path) -> list[Path]:
    """Rutas de las fuentes; un argumento que no existe se lee como varias separadas por espacios.

    Así valen `SRC="uno dos"` y también `SRC="Mis textos"`. `~` es la carpeta personal.
    """
    paths = []
    for argument in arguments:
        whole = _path(argument, base)
        try:
            parts = [_path(part, base) for part in shlex.split(argument)]
        except ValueError:  # unas comillas sin cerrar: será un nombre con comillas
            parts = [whole]
        paths += [whole] if os.path.lexists(whole) or len(parts) < 2 else parts
    return paths


def inspect_sources(paths: Sequence[Path], root: Path) -> list[Source]:
    """Comprueba las fuentes y mira qué se leerá de ellas, sin tocar nada.

    Raises:
        DataError: una fuente no sirve, o ninguno de sus ficheros se puede leer como texto.
    """
    return [_inspect(path, root / RAW) for path in paths]


def import_sources(sources: Sequence[Source], root: Path) -> Imported:
    """Copia las fuentes a `root/data/raw/` y ejecuta `dvc add data/raw`.

    Raises:
        DataError: una fuente choca con algo ya importado, no cabe, o falta en disco el texto que
            `data/raw.dvc` dice tener. Nada se copia si alguna fuente no sirve.
        EnlaceError: DVC no pudo apuntarlo; lo copiado queda y basta con repetir la orden.
    """
    folder = root / RAW
    names = [source.path.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"dos de las fuentes se llaman «{name}»; cambia el nombre de una")
    remove_temporaries(folder)
    check_nothing_missing(root)
    present = [source for source in sources if _already_there(source, folder)]
    copied = [source for source in sources if source not in present]
    _check_space(copied, root)
    for source in copied:
        _copy(source, folder)
    track(root)
    return Imported(copied, present)


def track(root: Path) -> None:
    """Apunta `data/raw` en DVC tal como está.

    Raises:
        EnlaceError: DVC no pudo; lo copiado queda y basta con repetir la orden.
    """
    run_dvc(["add", str(RAW)], root)


def survey_lines(source: Source) -> list[str]:
    """Lo que se leerá de una fuente y lo que no, para enseñarlo antes de copiar."""
    name, survey = source.path.name, source.survey
    read = ", ".join(
        f"{count.files} {kind} ({size(count.bytes)})" for kind, count in survey.formats.items()
    )
    lines = [f"{name}: se leerá {read}"]
    if survey.encodings:
        found = ", ".join(f"{count} en {kind}" for kind, count in survey.encodings.items())
        lines.append(f"{name}: pasarán a UTF-8 {found}")
    alike: dict[str, list[str]] = {}
    for item in survey.refused:
        alike.setdefault(item.detail, []).append(item.source)
    for detail, names in list(alike.items())[:_SHOWN_REASONS]:
        more = f" y {len(names) - 1} más" if len(names) > 1 else ""
        lines.append(f"{name}: no se leerá {names[0]}{more}: {detail}")
    if len(alike) > _SHOWN_REASONS:
        lines.append(f"{name}: no se leerán {len(survey.refused)} ficheros en total")
    return lines


def _path(text: str, base: Path) -> Path:
    # normpath y no resolve: `textos/..` se simplifica y un enlace conserva su nombre.
    return Path(os.path.normpath(base / Path(text).expanduser()))


def _inspect(path: Path, folder: Path) -> Source:
    """Comprueba una fuente y enumera sus ficheros sin copiar nada."""
    if not os.path.lexists(path):
        raise DataError(f"{path} no existe; revisa la ruta (SRC=…)")
    real, target = path.resolve(), folder.resolve()
    if target == real or target in real.parents or real in target.parents:
        raise DataError(f"{path} contiene {RAW} o está dentro; da la carpeta de tu texto")
    skipped = 0
    if real.is_dir():
        files, skipped = _walk(path)
        if not files:
            raise DataError(f"{path} no tiene ningún fichero visible; da una carpeta con texto")
    else:
        files = {"": path}
    for name, file in files.items():
        _check_name(Path(path.name, name))
        _check_file(file)
    if not any(file.stat().st_size for file in files.values()):
        raise DataError(f"{path} está vacío; da ficheros con texto")
    known = extensions("text")
    check_whole({name: file for name, file in files.items() if file.name.lower().endswith(known)})
    survey = survey_files(files)
    if not survey.formats:
        first = survey.refused[0]
        raise DataError(
            f"{path} no tiene nada que se pueda leer como texto ({first.source}: {first.detail})"
        )
    return Source(path, files, skipped, survey)


def _walk(path: Path) -> tuple[dict[str, Path], int]:
    """Los ficheros visibles bajo `path`, siguiendo enlaces sin caer en un bucle."""
    files: dict[str, Path] = {}
    skipped = 0
    pending = [(path, frozenset({path.resolve()}))]
    while pending:
        folder, ancestors = pending.pop()
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            raise DataError(f"{folder} no se puede leer: {fault_of(error)}") from error
        for entry in entries:
            if entry.name.startswith("."):
                skipped += 1
            elif entry.is_dir():
                real = entry.resolve()
                if real in ancestors:
                    raise DataError(f"{entry} es un enlace a una carpeta que lo contiene; quítalo")
                pending.append((entry, ancestors | {real}))
            else:
                files[str(entry.relative_to(path))] = entry
    return dict(sorted(files.items())), skipped


def _check_name(name: Path) -> None:
    """El nombre de la copia, con sus carpetas: uno que no es UTF-8 no cabe en un fichero de DVC."""
    try:
        str(name).encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "replace")
        raise DataError(f"{shown}: el nombre no es UTF-8; renómbralo") from None


def _check_file(file: Path) -> None:
    if not file.exists():
        raise DataError(f"{file} es un enlace roto; quítalo o arréglalo")
    if not file.is_file():
        raise DataError(f"{file} no es un fichero corriente; quítalo de la carpeta")
    if not os.access(file, os.R_OK):
        raise DataError(f"{file} no se puede leer; dale permiso de lectura")


def check_nothing_missing(root: Path) -> None:
    """`dvc add` apunta lo que ve: con texto sin descargar, lo daría por borrado.

    Raises:
        DataError: en disco hay menos ficheros de los que apunta `data/raw.dvc`.
    """
    pointer = (root / RAW).with_suffix(".dvc")
    if not pointer.is_file():
        return
    outs = read_yaml(pointer).get("outs") or [{}]
    declared = outs[0].get("nfiles", 0)
    found = sum(1 for file in (root / RAW).rglob("*") if file.is_file())
    if found < declared:
        raise DataError(
            f"{pointer.relative_to(root)} apunta {declared} ficheros y en {RAW} hay {found}; "
            f"tráelos con `make pull` (si los borraste a propósito: `dvc add {RAW}`) y repite"
        )


def _already_there(source: Source, folder: Path) -> bool:
    """Si la fuente ya está copiada tal cual.

    Raises:
        DataError: hay otra cosa con el mismo nombre.
    """
    target = folder / source.path.name
    if not os.path.lexists(target):
        return False
    if "" in source.files:
        existing = {"": target}
    else:
        found = sorted(file for file in target.rglob("*") if file.is_file())
        existing = {str(file.relative_to(target)): file for file in found}
    same = existing.keys() == source.files.keys() and all(
        existing[name].is_file() and _equal(existing[name], file)
        for name, file in source.files.items()
    )
    if not same:
        raise DataError(
            f"{RAW / source.path.name} ya existe con otro contenido y no se toca; cambia el nombre "
            f"de {source.path} o retira antes el anterior"
        )
    return True


def _equal(one: Path, other: Path) -> bool:
    return one.stat().st_size == other.stat().st_size and sha256_file(one) == sha256_file(other)


def _check_space(sources: Sequence[Source], root: Path) -> None:
    needed = sum(source.size for source in sources)
    free = shutil.disk_usage(root).free
    if needed > free:
        raise DataError(
            f"copiar ese texto necesita {size(needed)} y en el disco de {root} quedan "
            f"{size(free)}; libera espacio"
        )


def _copy(source: Source, folder: Path) -> None:
    target = folder / source.path.name
    try:
        if "" in source.files:
            with atomic_file(target) as temporary:
                shutil.copyfile(source.files[""], temporary)
            return
        with atomic_dir(target) as temporary:
            for name, file in source.files.items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, temporary / name)
    except OSError as error:
        raise DataError(
            f"no se ha podido copiar {source.path} a {target}: {fault_of(error)}; "
            "lo importado antes sigue entero"
        ) from error
