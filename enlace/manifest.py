"""El esquema de la procedencia: lo que cada checkpoint y cada modelo dicen de dónde vienen.

Un solo sitio y una sola versión. Se lee de forma estricta: una clave que falta, que sobra o de otro
tipo es un error, nunca un valor por defecto. Quien lo escribe es el entrenador; quien lo cuenta y
lo comprueba, `enlace/lineage/`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enlace.errors import CheckpointError
from enlace.files import canonical_json, sha256_json

PROVENANCE_VERSION = 1
InitState = Literal["weights", "all"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Steps = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class GitState(_Strict):
    """El commit y, con cambios sin guardar, el SHA-256 del parche; nulos fuera de git."""

    commit: str | None
    diff_sha256: Sha256 | None

    @property
    def patch_name(self) -> str | None:
        """El fichero que guarda el parche junto al manifiesto, si hay cambios sin guardar."""
        return None if self.diff_sha256 is None else f"code-{self.diff_sha256[:16]}.patch"


class StageLock(_Strict):
    """Lo que `dvc.lock` dice de una etapa: MD5 de sus datos de entrada y de sus resultados."""

    deps: dict[str, str]
    outs: dict[str, str]


class DvcState(_Strict):
    """La tubería: SHA-256 de `dvc.yaml` y lo anotado en `dvc.lock` de las etapas anteriores."""

    stage: str
    pipeline_sha256: Sha256 | None
    lock: dict[str, StageLock]


class ParentRecord(_Strict):
    """El checkpoint o modelo del que parte un entrenamiento, y los de los que partía aquel.

    `sha256` es el resumen de lo que se toma (`state`): los pesos, o también momentos, cuentas,
    escala y posición en los datos.
    """

    sha256: Sha256
    state: InitState
    kind: Literal["checkpoint", "model"]
    run_name: str
    identity: str
    fingerprint: str
    step: Steps
    tokens: Steps
    model_sha256: Sha256
    data: str
    tokenizer: str
    git: GitState
    parent: "ParentRecord | None"


class Origin(_Strict):
    """De qué datos, código y padre sale un entrenamiento, tal como estaban en su último arranque.

    Attributes:
        version: la del esquema.
        data: huella del índice de los shards.
        tokenizer: SHA-256 de `tokenizer.json`.
        corpus_report: SHA-256 del informe del corpus, si estaba.
        shards: {fichero: SHA-256} de la carpeta de shards.
        code: SHA-256 de las fuentes que el entrenamiento importa, byte a byte.
        code_normalized: lo mismo, sin comentarios, docstrings ni formato.
        sources: {fichero: SHA-256} de esas fuentes.
        git: el estado del repositorio.
        dvc: la tubería hasta aquí.
        parent: de quién parte (`train.init_from`); nulo si empieza de cero.
    """

    version: Literal[1]
    data: str
    tokenizer: str
    corpus_report: Sha256 | None
    shards: dict[str, Sha256]
    code: Sha256
    code_normalized: Sha256
    sources: dict[str, Sha256]
    git: GitState
    dvc: DvcState
    parent: ParentRecord | None


class ResumePoint(_Strict):
    """El checkpoint desde el que siguió un segmento: su paso y el SHA-256 de sus pesos."""

    step: Steps
    model_sha256: Sha256


class Rewind(_Strict):
    """Una vuelta atrás: del paso `at_step` al `to_step`, con los lotes que ya no se usan."""

    at_step: Steps
    to_step: Steps
    reason: str
    skipped_batches: list[Steps]


class Segment(_Strict):
    """Un tramo del entrenamiento sin cambios. Entre dos, la igualdad bit a bit no se promete.

    `differences` son las claves que cambiaron respecto al anterior: [antes, ahora]. El primero no
    tiene; si parte de otro entrenamiento, `from_step` es el paso del padre.
    """

    from_step: Steps
    started: str
    differences: dict[str, list[Any]]
    code: Sha256
    code_normalized: Sha256
    git: GitState
    versions: dict[str, str]
    device: str
    threads: int
    resumed_from: ResumePoint | None
    rewinds: list[Rewind]


class History(_Strict):
    """Lo que un checkpoint y un modelo comparten: su origen y sus tramos."""

    origin: Origin
    segments: Annotated[list[Segment], Field(min_length=1)]


def read_history(record: Mapping[str, Any], where: Path) -> History:
    """La procedencia que guarda un `state.json` o un `manifest.json` ya comprobado.

    Raises:
        CheckpointError: falta, sobra o no vale alguna clave, o la escribió otra versión.
    """
    origin = record.get("origin")
    version = origin.get("version") if isinstance(origin, Mapping) else None
    if isinstance(version, int) and version != PROVENANCE_VERSION:
        raise CheckpointError(
            f"{where} cuenta su procedencia en la versión {version} del esquema y este programa "
            f"lee la {PROVENANCE_VERSION}; ábrelo con el enlace que lo escribió"
        )
    values = {"origin": origin, "segments": record.get("segments")}
    try:
        return History.model_validate_json(canonical_json(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(
            f"{where} no cuenta bien su procedencia: {key}: {first['msg']}"
        ) from error


def content_sha256(record: Mapping[str, Any], state: InitState) -> str:
    """El resumen de lo que se toma de un checkpoint o modelo: no depende de dónde está.

    Con `weights` son los pesos, y nada más: el último checkpoint de un run y el modelo que se
    exportó de él valen lo mismo. Con `all` entran también los momentos, las cuentas, la escala de
    fp16 y la posición en los datos.

    Args:
        record: el contenido, ya comprobado, de `state.json` o `manifest.json`.
        state: qué se toma.

    Raises:
        KeyError: `all` sobre un modelo exportado, que no guarda el estado.
    """
    weights: str = record["files"]["model.safetensors"]
    if state == "weights":
        return weights
    parts = {key: record[key] for key in ("counters", "scaler", "stream")}
    return sha256_json(
        {"model": weights, "optimizer": record["files"]["optimizer.safetensors"]} | parts
    )
