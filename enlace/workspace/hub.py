"""Conjuntos de Hugging Face: qué ficheros tiene una configuración y sus registros, en orden.

`datasets` dice qué ficheros forman una parte; `fsspec` y `huggingface_hub` los abren a trozos y
`pyarrow` lee de un parquet solo la columna pedida. La posición (fichero, grupo de filas, fila)
permite seguir donde se dejó sin volver a traer los ficheros anteriores. Una carpeta local con la
misma forma se lee con el mismo código.
"""

import json
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.corpus import DownloadConfig
from enlace.errors import DataError
from enlace.files import sha256_json

_PARQUET = (".parquet",)
_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json", ".json.gz", ".json.zst")
_LIBRARIES = ("datasets", "pyarrow", "fsspec", "huggingface_hub")
_CONFIGS = re.compile(r"(?:Available|available configs): (\[[^\]]*\])")
_GATED = re.compile(r"\bgated\b", re.IGNORECASE)
_ROWS = 512
_SHOWN = 8


class Remote(NamedTuple):
    """Una parte de un conjunto, ya resuelta: el commit exacto y sus ficheros en orden."""

    commit: str
    files: tuple[str, ...]


class Position(NamedTuple):
    """El siguiente registro por leer: fichero, grupo de filas (0 en jsonl) y fila dentro de él."""

    file: int = 0
    group: int = 0
    row: int = 0


def require_libraries() -> None:
    """Comprueba que está instalado el extra `hf`.

    Raises:
        DataError: falta alguna biblioteca.
    """
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise DataError(
            f"para descargar hace falta {', '.join(missing)}; instálalo con "
            "`.venv/bin/pip install -c .constraints.txt -e '.[hf]'`"
        )


def resolve(download: DownloadConfig) -> Remote:
    """Pregunta por el conjunto: el commit de `revision` y los ficheros de la parte pedida.

    Raises:
        DataError: sin red, nombre, revisión, configuración o parte que no existen, conjunto con
            acceso restringido, o ficheros que no son parquet ni jsonl.
    """
    require_libraries()
    import datasets
    from huggingface_hub import HfApi

    local = Path(download.dataset)
    options: dict[str, Any] = {"name": download.subset or None}
    with hub_errors(download), tempfile.TemporaryDirectory() as cache:
        if local.is_dir():
            commit = _local_commit(local)
        else:
            info = HfApi().dataset_info(download.dataset, revision=download.revision)
            commit = str(info.sha)
            options["revision"] = commit
        builder = datasets.load_dataset_builder(download.dataset, cache_dir=cache, **options)
    found = builder.config.data_files or {}
    if download.split not in found:
        raise DataError(
            f"{_label(download)} no tiene la parte «{download.split}» (tiene "
            f"{', '.join(map(str, found)) or 'ninguna'}); corrige data.downloads.split"
        )
    files = tuple(str(file) for file in found[download.split])
    for file in files:
        if not file.endswith(_PARQUET + _LINES):
            raise DataError(
                f"{_label(download)}: {file} no es parquet ni jsonl; descárgalo aparte y tráelo "
                "con make corpus SRC=…"
            )
    return Remote(commit, files)


def records(
    remote: Remote, download: DownloadConfig, start: Position
) -> Iterator[tuple[Position, Any]]:
    """Los valores de la columna desde `start`, cada uno con la posición del siguiente.

    Raises:
        DataError: falta la columna, se corta la red o un fichero está dañado.
    """
    for number in range(start.file, len(remote.files)):
        here = start if number == start.file else Position(number)
        read = _parquet if remote.files[number].endswith(_PARQUET) else _json_lines
        with hub_errors(download):
            yield from read(remote.files[number], download, here)


def _parquet(url: str, download: DownloadConfig, start: Position) -> Iterator[tuple[Position, Any]]:
    import pyarrow.parquet as parquet
    from fsspec.core import url_to_fs

    column = download.text_column
    system, path = url_to_fs(url)
    # Sin lectura anticipada: con ella viajarían también las columnas que hay entre medias.
    with (
        system.open(path, "rb", cache_type="none") as stream,
        parquet.ParquetFile(stream) as table,
    ):
        _check_column(column, table.schema_arrow.names, url)
        for group in range(start.group, table.num_row_groups):
            row = 0
            for batch in table.iter_batches(_ROWS, row_groups=[group], columns=[column]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    if group > start.group or row > start.row:
                        yield Position(start.file, group, row), value


def _json_lines(
    url: str, download: DownloadConfig, start: Position
) -> Iterator[tuple[Position, Any]]:
    import fsspec

    with fsspec.open(url, "rb", compression="infer") as stream:
        for row, line in enumerate(stream, start=1):
            if row <= start.row or not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{url}:{row} no es un objeto JSON por línea: {error}") from error
            if not isinstance(record, dict):
                raise DataError(f"{url}:{row} no es un objeto JSON por línea")
            if row == 1:  # en las demás, que falte es como que esté vacía
                _check_column(download.text_column, list(record), url)
            yield Position(start.file, 0, row), record.get(download.text_column)


def _check_column(column: str, present: list[str], where: str) -> None:
    if column not in present:
        raise DataError(
            f"{where} no tiene la columna «{column}» (tiene {', '.join(present[:_SHOWN])}); "
            "corrige data.downloads.text_column"
        )


def _local_commit(folder: Path) -> str:
    """Lo que hace de commit en una carpeta local: el resumen de sus nombres y tamaños."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "local-" + sha256_json(
        [[file.relative_to(folder).as_posix(), file.stat().st_size] for file in files]
    )


def _label(download: DownloadConfig) -> str:
    return f"{download.dataset}/{download.subset}" if download.subset else download.dataset


@contextmanager
def hub_errors(download: DownloadConfig) -> Iterator[None]:
    """Convierte los fallos de las bibliotecas en un mensaje que dice qué hacer."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        message = _explain(error, download)
        if message is None:
            raise
        raise DataError(message) from error


def _explain(error: Exception, download: DownloadConfig) -> str | None:
    """El mensaje de un fallo conocido (de lo concreto a lo general); None si no lo es."""
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import errors as hub
    from pyarrow import ArrowException
    from zstandard import ZstdError

    label, detail = _label(download), " ".join(str(error).split())[:200]
    if isinstance(error, hub.GatedRepoError) or _GATED.search(detail):
        return (
            f"{label} pide aceptar sus condiciones: acéptalas en su página con tu cuenta, entra "
            "con `.venv/bin/hf auth login` y repite la orden"
        )
    if isinstance(error, hub.RevisionNotFoundError):
        return (
            f"{label} no tiene la revisión «{download.revision}»; corrige data.downloads.revision"
        )
    if isinstance(error, hub.RepositoryNotFoundError | DatasetNotFoundError):
        return f"no existe el conjunto {download.dataset} (o es privado); revisa data.downloads"
    if isinstance(error, hub.HFValidationError):
        return f"«{download.dataset}» no es un nombre de conjunto válido; revisa data.downloads"
    if isinstance(error, ValueError) and _CONFIGS.search(str(error)):
        return _unknown_subset(error, download)
    if isinstance(error, hub.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE impide descargar; quítala del entorno y repite la orden"
    if _is_network(error):
        return (
            f"no se puede llegar a {label} ({type(error).__name__}: {detail}); comprueba la red y "
            "repite la orden: sigue donde iba"
        )
    if isinstance(error, FileNotFoundError):
        return f"{label}: falta un fichero ({detail}); revisa data.downloads"
    # pyarrow y gzip dan también un OSError sin número; los del sistema lo llevan.
    corrupt = isinstance(error, ArrowException | EOFError | zlib.error | ZstdError)
    if corrupt or (isinstance(error, OSError) and error.errno is None):
        return f"{label}: un fichero está dañado o cortado ({detail}); repite la orden"
    return None


def _unknown_subset(error: Exception, download: DownloadConfig) -> str:
    """FineWeb-2 tiene miles de configuraciones: se nombran las parecidas."""
    listed = _CONFIGS.search(str(error))
    names = re.findall(r"'([^']*)'", listed.group(1) if listed else "")
    close = get_close_matches(download.subset, names, _SHOWN) or names[:_SHOWN]
    problem = (
        f"no tiene la configuración «{download.subset}»"
        if download.subset
        else "tiene varias configuraciones y hay que decir cuál"
    )
    return f"{download.dataset} {problem} (como {', '.join(close)}); corrige data.downloads.subset"


def _is_network(error: Exception) -> bool:
    """Fallos de la red o del servidor, sean de la biblioteca HTTP que sean."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(
        error, ConnectionError | TimeoutError | HfHubHTTPError | LocalEntryNotFoundError
    ) or bool(
        modules & {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp"}
    )
