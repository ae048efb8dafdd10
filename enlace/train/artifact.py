"""Abrir un checkpoint o un modelo sin cargar torch: qué es, de dónde viene y si está bien.

Lo usan las órdenes que cuentan o comprueban un linaje y quien parte de otro entrenamiento.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from enlace.config.schema import Config
from enlace.config.stored import stored_config
from enlace.errors import CheckpointError
from enlace.manifest import History, read_history
from enlace.train.untrusted import check_digest, check_digests, read_bounded, read_json_object

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
STATE, STATE_DIGEST = "state.json", "state.sha256"
MANIFEST, MANIFEST_DIGEST = "manifest.json", "manifest.sha256"
MANIFEST_VERSION = 2
EXPORT, EXPORT_DIGEST = "enlace.json", "enlace.sha256"
EXPORT_VERSION = 1

_STEP = re.compile(r"step_(\d{8,})")
_DIGEST = re.compile(r"([0-9a-f]{64})  (.+)\n")
_MAX_DIGEST_BYTES = 256


Kind = Literal["checkpoint", "model", "export"]
_RECORDS: dict[Kind, str] = {"checkpoint": STATE, "model": MANIFEST, "export": EXPORT}


@dataclass(frozen=True)
class Artifact:
    """Un checkpoint o un modelo, con su registro ya comprobado contra su resumen.

    Attributes:
        path: su carpeta.
        kind: checkpoint (se puede seguir), modelo, o su exportación a otros programas.
        record: el contenido de `state.json`, `manifest.json` o `enlace.json`.
        history: su procedencia.
        config: la configuración con la que se entrenó.
    """

    path: Path
    kind: Kind
    record: dict[str, Any]
    history: History
    config: Config

    @property
    def step(self) -> int:
        """El paso en el que está."""
        return int(self.record["step"])

    @property
    def files(self) -> dict[str, str]:
        """{fichero: SHA-256} de lo que la carpeta debe contener."""
        return dict(self.record["files"])

    @property
    def weights_sha256(self) -> str:
        """El SHA-256 de sus pesos con los nombres de ENLACE; una exportación les da otros."""
        record = self.record["model"] if self.kind == "export" else self.record
        return str(record["files"][MODEL])

    @property
    def record_name(self) -> str:
        """El fichero con su registro."""
        return _RECORDS[self.kind]

    def verify(self) -> None:
        """Relee todos sus ficheros.

        Raises:
            CheckpointError: falta uno o no es el que se escribió; lo nombra.
        """
        required = (MODEL, OPTIMIZER) if self.kind == "checkpoint" else (MODEL, CONFIG, TOKENIZER)
        check_digests(self.path, self.record["files"], required)


def open_artifact(path: Path) -> Artifact:
    """Abre un checkpoint, un modelo, su exportación o la carpeta de un run (su último checkpoint).

    Solo lee lo pequeño: los pesos los comprueba `Artifact.verify`.

    Raises:
        CheckpointError: no hay nada de eso en `path`, o su registro está dañado.
    """
    if not path.is_dir():
        raise CheckpointError(
            f"{path} no existe o no es una carpeta; da la de un checkpoint, la de un run o la de "
            "un modelo (si lo guarda DVC, tráelo antes con `make pull`)"
        )
    if (path / "checkpoints").is_dir():
        return _newest(path)
    if (path / STATE).exists():
        record = read_signed(path, STATE, STATE_DIGEST)
        return _open(path, "checkpoint", record, record.get("config"))
    if (path / MANIFEST).exists():
        record = read_signed(path, MANIFEST, MANIFEST_DIGEST)
        _check_version(record, MANIFEST_VERSION, path / MANIFEST)
        files = record.get("files")
        check_digest(path / CONFIG, files.get(CONFIG) if isinstance(files, dict) else None)
        return _open(path, "model", record, read_json_object(path / CONFIG))
    if (path / EXPORT).exists():
        record = read_signed(path, EXPORT, EXPORT_DIGEST)
        _check_version(record, EXPORT_VERSION, path / EXPORT)
        return _open(path, "export", record, record.get("config"))
    raise CheckpointError(
        f"{path} no es un checkpoint ni un modelo: no tiene {STATE} ni {MANIFEST}; da la carpeta "
        "que los contiene"
    )


def run_checkpoints(run: Path) -> list[Path]:
    """Las carpetas de checkpoint de un run, de la más antigua a la más nueva."""
    folder = run / "checkpoints"
    found = [
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _STEP.fullmatch(path.name)) and path.is_dir()
    ]
    return [path for _, path in sorted(found)]


def read_signed(folder: Path, name: str, digest_name: str) -> dict[str, Any]:
    """Lee un JSON tras compararlo con el resumen que lleva al lado.

    Raises:
        CheckpointError: falta alguno de los dos o no coinciden.
    """
    text = read_bounded(folder / digest_name, _MAX_DIGEST_BYTES).decode("utf-8", "replace")
    match = _DIGEST.fullmatch(text)
    if match is None or match[2] != name:
        raise CheckpointError(f"{folder / digest_name} está dañado: no es un SHA-256 de {name}")
    check_digest(folder / name, match[1])
    return read_json_object(folder / name)


def signature(digest: str, name: str) -> str:
    """El contenido del fichero con el resumen de otro, en el formato de `sha256sum`."""
    return f"{digest}  {name}\n"


def _newest(run: Path) -> Artifact:
    reasons = []
    for path in reversed(run_checkpoints(run)):
        try:
            return open_artifact(path)
        except CheckpointError as error:
            reasons.append(str(error))
    raise CheckpointError(
        f"{run} no tiene ningún checkpoint legible" + "".join(f"; {reason}" for reason in reasons)
    )


def _check_version(record: Mapping[str, Any], readable: int, where: Path) -> None:
    if record.get("version") != readable:
        raise CheckpointError(
            f"{where} tiene el formato {record.get('version')!r} y esta versión de enlace lee el "
            f"{readable}"
        )


def _open(path: Path, kind: Kind, record: dict[str, Any], config: Any) -> Artifact:
    where = path / _RECORDS[kind]
    _check_shape(record, where)
    if kind == "export":
        model = record.get("model")
        _check_files(model.get("files") if isinstance(model, dict) else None, where)
    history = read_history(record, where)
    return Artifact(path, kind, record, history, stored_config(config, where))


def _check_shape(record: Mapping[str, Any], where: Path) -> None:
    kinds: dict[str, type] = {
        "step": int,
        "tokens": int,
        "identity": str,
        "fingerprint": str,
        "counters": dict,
        "evaluation": dict,
        "files": dict,
    }
    for key, kind in kinds.items():
        if not isinstance(record.get(key), kind):
            raise CheckpointError(f"{where} no tiene la clave {key} como {kind.__name__}")
    _check_files(record["files"], where)


def _check_files(files: object, where: Path) -> None:
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
        raise CheckpointError(f"{where} no enumera bien sus ficheros")
    if MODEL not in files:
        raise CheckpointError(f"{where} no enumera {MODEL} entre sus ficheros")
