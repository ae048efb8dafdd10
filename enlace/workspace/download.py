"""Traer conjuntos de Hugging Face a `data/raw`: por partes enteras, y seguir tras un corte.

Se trabaja en `.enlace/downloads/NOMBRE`, fuera de `data/raw`: lo que está a medias no parece nunca
texto listo. Cada parte se escribe entera y después se apunta en `state.json` por dónde seguir; al
acabar, la carpeta se muda a `data/raw/NOMBRE` de una vez. Dónde acaba una parte depende solo de los
registros: una descarga con cortes deja los mismos bytes que una seguida.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from enlace.config.corpus import DownloadConfig
from enlace.config.schema import DataConfig
from enlace.errors import ConfigError, DataError, cause_of
from enlace.files import atomic_dir, atomic_file, remove_temporaries, sha256_file, write_json
from enlace.paths import RAW, private_folder
from enlace.process import exclusive_lock
from enlace.workspace.hub import Position, Remote, records, require_libraries, resolve
from enlace.workspace.raw import check_nothing_missing, track

MANIFEST = ".download.json"
"""Oculto, para que ningún patrón de `data.include` lo lea como texto."""
VERSION = 1
PART_BYTES = 256_000_000
"""Bytes UTF-8 de texto por parte: lo que como mucho se repite tras un corte."""
_STATE = "state.json"
_ZSTD_LEVEL = 3
_CHAT_FIELD = "messages"

Report = Callable[[str], None]


class Downloaded(NamedTuple):
    """Un conjunto que está en `data/raw`, y si ya estaba."""

    folder: Path
    manifest: dict[str, Any]
    present: bool


def download_all(
    data: DataConfig, root: Path, report: Report = print, part_bytes: int = PART_BYTES
) -> list[Downloaded]:
    """Trae cada conjunto de `data.downloads` y apunta `data/raw` en DVC.

    Raises:
        ConfigError: no hay nada que traer, o dos conjuntos van a la misma carpeta.
        DataError: ver `hub.resolve`; no cabe; o lo que hay a medias o terminado es de otro
            conjunto, otra revisión u otros ajustes.
        LockError: otra descarga está en marcha.
    """
    if not data.downloads:
        raise ConfigError(
            "params.yaml no dice qué descargar (data.downloads está vacío); da tu texto con "
            "`make corpus SRC=carpeta` o elige antes un run que lo diga, como "
            "`make params RUN=pretrain-2060`"
        )
    names = [download.name for download in data.downloads]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"params.yaml: dos entradas de data.downloads se llaman «{name}»")
    check_nothing_missing(root)
    with exclusive_lock(_work_folder("lock")):
        done = [_bring(download, data, root, report, part_bytes) for download in data.downloads]
    track(root)
    return done


def _work_folder(name: str) -> Path:
    return private_folder() / "downloads" / name


def _bring(
    download: DownloadConfig, data: DataConfig, root: Path, report: Report, part_bytes: int
) -> Downloaded:
    target = root / RAW / download.name
    field = _CHAT_FIELD if data.format == "chat" else data.text_column
    request = download.model_dump(mode="json") | {
        "field": field, "license_field": data.license_column, "part_bytes": part_bytes
    }  # fmt: skip
    if os.path.lexists(target):
        manifest = _read(target / MANIFEST)
        if manifest is None:
            raise DataError(
                f"{RAW / download.name} ya existe y no es una descarga; cambia el nombre de la "
                "carpeta o data.downloads.name"
            )
        del request["part_bytes"]  # dónde se corta cada parte no cambia el texto
        _check_same(manifest.get("request", {}), request, RAW / download.name)
        # Si el corte llegó al copiarla desde otro disco, la de trabajo sobra.
        shutil.rmtree(_work_folder(download.name), ignore_errors=True)
        return Downloaded(target, manifest, present=True)
    require_libraries()
    work = _work_folder(download.name)
    if not (work / MANIFEST).is_file():
        remote = resolve(download)
        _Download(download, remote, work, request, report).run()
    manifest = _read(work / MANIFEST) or {}
    _check_same(manifest.get("request", {}), request, work)
    (work / _STATE).unlink(missing_ok=True)
    _move(work, target)
    return Downloaded(target, manifest, present=False)


class _Download:
    """Una descarga en su carpeta de trabajo."""

    def __init__(
        self,
        download: DownloadConfig,
        remote: Remote,
        work: Path,
        request: dict[str, Any],
        report: Report,
    ) -> None:
        self._download = download
        self._remote = remote
        self._work = work
        self._report = report
        self._max_bytes = int(download.max_megabytes * 1e6)
        self._state = self._restore(request)

    def run(self) -> None:
        """Baja lo que falta y escribe el manifiesto."""
        state = self._state
        self._check_space(self._max_bytes - state["bytes"])
        source = records(self._remote, self._download, Position(*state["position"]))
        while not state["finished"]:
            self._check_space(state["request"]["part_bytes"])
            self._write_part(source)
            write_json(self._work / _STATE, state)
            self._report(
                f"{self._download.name}: {len(state['parts'])} partes, "
                f"{state['bytes'] / 1e6:.0f} de {self._max_bytes / 1e6:.0f} MB como mucho, "
                f"fichero {state['position'][0] + 1} de {len(self._remote.files)}"
            )
        if not state["documents"]:
            shutil.rmtree(self._work)
            raise DataError(
                f"{self._download.dataset} no ha dado ningún texto en la columna "
                f"«{self._download.text_column}»; revisa data.downloads (max_megabytes = "
                f"{self._download.max_megabytes:g})"
            )
        del state["position"]
        write_json(self._work / MANIFEST, state)

    def _restore(self, request: dict[str, Any]) -> dict[str, Any]:
        """Lo apuntado, si es de la misma petición y sus partes están enteras; si no, de cero."""
        self._work.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self._work)
        state = _read(self._work / _STATE)
        if state is None:
            state = {
                "version": VERSION,
                "request": request,
                "commit": self._remote.commit,
                "remote_files": len(self._remote.files),
                "rows": 0,
                "documents": 0,
                "without_text": 0,
                "bytes": 0,
                "finished": "",
                "position": list(Position()),
                "parts": [],
            }
        asked = {"commit": self._remote.commit, "version": VERSION} | request
        begun = {"commit": state["commit"], "version": state["version"]} | state["request"]
        _check_same(begun, asked, self._work)
        known = {part["file"] for part in state["parts"]}
        for part in state["parts"]:
            path = self._work / part["file"]
            if not path.is_file() or sha256_file(path) != part["sha256"]:
                raise DataError(f"{path} falta o está dañado; borra {self._work} y repite la orden")
        for path in self._work.glob("part-*"):
            if path.name not in known:
                path.unlink()  # escrita, pero el corte llegó antes de apuntarla
        return state

    def _write_part(self, source: Iterator[tuple[Position, Any]]) -> None:
        """Escribe la parte siguiente y la apunta en el estado (todavía en memoria)."""
        state = self._state
        path = self._work / f"part-{len(state['parts']):05d}.jsonl.zst"
        before = (state["documents"], state["bytes"])
        with atomic_file(path) as temporary, temporary.open("wb") as raw:
            compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
            with compressor.stream_writer(raw, closefd=False) as stream:
                while state["bytes"] - before[1] < state["request"]["part_bytes"]:
                    if not self._take(source, stream):
                        break
        documents, size = state["documents"] - before[0], state["bytes"] - before[1]
        if not documents:
            path.unlink()
            return
        state["parts"].append(
            {
                "file": path.name,
                "documents": documents,
                "bytes": size,
                "sha256": sha256_file(path),
            }
        )

    def _take(self, source: Iterator[tuple[Position, Any]], stream: Any) -> bool:
        """Pasa un registro a la parte; False si se acabaron o si ya no cabe en el máximo."""
        state = self._state
        position, value = next(source, (None, None))
        if position is None:
            state["finished"] = "end"
            return False
        line, size = self._line(value)
        if size and state["bytes"] + size > self._max_bytes:
            state["finished"] = "limit"
            return False
        state["position"] = list(position)
        state["rows"] += 1
        if line is None:
            state["without_text"] += 1
            return True
        stream.write(line)
        state["documents"] += 1
        state["bytes"] += size
        return True

    def _line(self, value: Any) -> tuple[bytes | None, int]:
        """La línea de un registro y los bytes de su texto; None si no tiene texto."""
        if not value:
            return None, 0
        request = self._state["request"]
        expected = list if request["field"] == _CHAT_FIELD else str
        if not isinstance(value, expected):
            raise DataError(
                f"{self._download.dataset}: la columna «{self._download.text_column}» guarda "
                f"{type(value).__name__} y hace falta {expected.__name__}; revisa "
                "data.downloads.text_column y data.format"
            )
        record = {request["field"]: value}
        if request["license_field"]:
            record[request["license_field"]] = self._download.license
        try:
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return line + b"\n", len(text.encode("utf-8"))
        except UnicodeEncodeError:  # un sustituto suelto, que ningún UTF-8 guarda
            return None, 0

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self._work).free
        if needed > free:
            raise DataError(
                f"{self._download.name} puede ocupar {needed / 2**30:.1f} GiB más y en el disco de "
                f"{self._work} quedan {free / 2**30:.1f} GiB; libera espacio o baja "
                "data.downloads.max_megabytes. Lo descargado queda, y la orden sigue donde iba"
            )


def _check_same(begun: dict[str, Any], asked: dict[str, Any], folder: Path) -> None:
    for key, value in asked.items():
        if begun.get(key) != value:
            raise DataError(
                f"{folder} se empezó con {key} = {begun.get(key)!r} y ahora es {value!r}; deja "
                f"params.yaml como estaba, o retira {folder} para traerlo de nuevo"
            )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} no se puede leer ({cause_of(error)}); retira su carpeta y repite"
        ) from error
    return content if isinstance(content, dict) else {}


def _move(work: Path, target: Path) -> None:
    """Muda la carpeta terminada; si `data/raw` está en otro disco, la copia entera o nada."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(work, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with atomic_dir(target) as temporary:
            shutil.copytree(work, temporary, dirs_exist_ok=True)
        shutil.rmtree(work)
