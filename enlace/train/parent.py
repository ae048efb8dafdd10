"""El padre: el checkpoint o modelo del que parte un entrenamiento (`train.init_from`).

La regla. Lo que cuenta es el contenido: `make params` resume lo que se toma y lo escribe en
`train.init_sha256`, que entra en la identidad; la ruta no entra, y mover la carpeta no cambia nada.
`make params` guarda además una copia en `.enlace/parents/`, con el resumen por nombre: DVC borra
las salidas de una etapa antes de ejecutarla, y `checkpoints/` es una de ellas. Un entrenamiento
solo empieza si encuentra ese contenido en la copia o, si falta, en la ruta.
"""

import shutil
from pathlib import Path
from typing import Any

from enlace.config.schema import Config, TrainConfig
from enlace.errors import CheckpointError
from enlace.files import atomic_dir, remove_temporaries, sha256_file, write_bytes
from enlace.manifest import InitState, ParentRecord, content_sha256
from enlace.paths import private_folder, shared_root
from enlace.process import exclusive_lock
from enlace.train.artifact import TOKENIZER, Artifact, open_artifact

_SHAPE = (
    "vocab_size",
    "n_layer",
    "n_head",
    "n_kv_head",
    "d_model",
    "ffn_dim",
    "tie_embeddings",
    "qk_norm",
)
"""Lo que fija los nombres, las formas y el sentido de los pesos. Lo demás (contexto, theta de RoPE,
dropout…) puede cambiar al tomar solo los pesos: así se alarga el contexto."""
_SAME_TRAIN = ("seed", "tokens_per_step", "optimizer")
"""Lo que además debe coincidir para seguir con el optimizador y el paso del padre."""


def store() -> Path:
    """Dónde guarda esta máquina las copias de los padres."""
    return private_folder() / "parents"


def taken_sha256(artifact: Artifact, state: InitState) -> str:
    """El resumen de lo que se toma de `artifact`.

    Raises:
        CheckpointError: es una exportación, o se pide el estado de un modelo, que solo lleva pesos.
    """
    if artifact.kind == "export":
        raise CheckpointError(
            f"{artifact.path} es un modelo exportado para otros programas; parte del modelo del "
            "que sale (checkpoints/model) o de un checkpoint"
        )
    if state == "all" and artifact.kind == "model":
        raise CheckpointError(
            f"{artifact.path} es un modelo exportado y solo lleva pesos; pon train.init_state: "
            "weights, o parte de un checkpoint (checkpoints/state o runs/…/checkpoints/step_…)"
        )
    return content_sha256(artifact.record, state)


def resolve_parent(config: Config, known: TrainConfig | None = None) -> Config:
    """La configuración con `train.init_sha256` según lo que hay ahora en `train.init_from`.

    Comprueba que el padre sirve y guarda su copia. Sin `init_from`, la devuelve igual.

    Args:
        config: la configuración, quizá sin resumen.
        known: la receta anterior con el mismo `init_from`, ya resuelta. Su padre se conserva si la
            ruta ya no existe, o si lo que hay en ella es el resultado de pedir esto mismo: repetir
            la orden no es otra generación.

    Raises:
        CheckpointError: la ruta no existe, el padre está dañado o no casa con la configuración.
    """
    train = config.train
    if not train.init_from:
        return config
    given = shared_root() / train.init_from
    kept = store() / known.init_sha256[:16] if known and known.init_sha256 else None
    if kept is not None and kept.is_dir() and not given.exists():
        given = kept
    artifact = open_artifact(given)
    if kept is not None and known and _same_request(artifact, config, known):
        artifact = open_artifact(kept)
    check_compatible(artifact, config)
    digest = taken_sha256(artifact, train.init_state)
    freeze(artifact, digest)
    resolved = train.model_copy(update={"init_sha256": digest})
    return config.model_copy(update={"train": resolved})


def _same_request(artifact: Artifact, config: Config, known: TrainConfig) -> bool:
    """Si `artifact` es lo que da esta configuración con el padre ya conocido."""
    train = config.train.model_copy(update={"init_sha256": known.init_sha256})
    return config.model_copy(update={"train": train}).identity() == artifact.config.identity()


def find_parent(train: TrainConfig) -> Artifact | None:
    """El padre que pide la configuración, comprobado entero; None si se empieza de cero.

    `train` puede ser una vista que deje leer las tres claves `init_…`.

    Raises:
        CheckpointError: no está ni la copia ni el contenido pedido en la ruta, o está dañado.
    """
    digest, state = train.init_sha256, train.init_state
    if not digest:
        return None
    folder = store() / digest[:16]
    if not folder.is_dir():
        given = shared_root() / train.init_from
        artifact = open_artifact(given)
        found = taken_sha256(artifact, state)
        if found != digest:
            raise CheckpointError(
                f"train.init_from = {train.init_from} contiene {found[:16]}… y train.init_sha256 "
                f"pide {digest[:16]}…; recupera aquel contenido, o toma este con "
                f'`make params RUN={artifact.config.run_name} SET="train.init_from={given}"` '
                "(con el run que corresponda)"
            )
        freeze(artifact, digest)
    artifact = open_artifact(folder)
    artifact.verify()
    if taken_sha256(artifact, state) != digest:
        raise CheckpointError(f"{folder} no contiene lo que dice su nombre; bórrala y repite")
    return artifact


def freeze(artifact: Artifact, digest: str) -> Path:
    """Copia el padre, con su tokenizador, en el almacén; si ya está, no hace nada.

    Raises:
        CheckpointError: está dañado o no se encuentra su tokenizador.
        LockError: otro proceso está guardando otro padre.
    """
    folder = store() / digest[:16]
    if folder.is_dir():
        return folder
    tokenizer = _tokenizer_of(artifact)
    with exclusive_lock(store().with_suffix(".lock")):
        remove_temporaries(store())  # los de un corte: pueden ser gigabytes
        with atomic_dir(folder) as temporary:
            for file in sorted(artifact.path.iterdir()):
                if file.is_file():
                    shutil.copyfile(file, temporary / file.name)
            shutil.copyfile(tokenizer, temporary / TOKENIZER)
            open_artifact(temporary).verify()
    return folder


def inherit_tokenizer(parent: Artifact, folder: Path) -> None:
    """Escribe en `folder` el tokenizador del padre: en sus pesos, cada id ya significa algo.

    Raises:
        CheckpointError: el padre no lo lleva o no es el suyo.
    """
    content = _tokenizer_of(parent).read_bytes()
    remove_temporaries(folder.parent, folder.name)
    with atomic_dir(folder) as temporary:
        write_bytes(temporary / TOKENIZER, content)


def _tokenizer_of(artifact: Artifact) -> Path:
    expected = artifact.history.origin.tokenizer
    # El de un checkpoint en curso está en la carpeta de su run, dos niveles más arriba.
    for folder in (artifact.path, artifact.path.resolve().parent.parent):
        path = folder / TOKENIZER
        if path.is_file() and sha256_file(path) == expected:
            return path
    raise CheckpointError(
        f"no encuentro el tokenizador de {artifact.path} ({expected[:16]}…) ni en su carpeta ni en "
        "la de su run; parte del modelo exportado o pon ahí su tokenizer.json"
    )


def check_compatible(artifact: Artifact, config: Config) -> None:
    """Comprueba que los pesos (y, con `all`, el optimizador y el paso) sirven a `config`.

    Raises:
        CheckpointError: nombra la primera clave que difiere y sus dos valores.
    """
    for key, before, now in _requirements(artifact, config):
        if before != now:
            raise CheckpointError(
                f"{artifact.path} se entrenó con {key} = {before!r} y aquí vale {now!r}; para "
                f"partir de él con train.init_state: {config.train.init_state} debe ser "
                f"{before!r}"
            )
    steps = config.train.steps
    if config.train.init_state == "all" and artifact.step >= steps:
        raise CheckpointError(
            f"{artifact.path} va por el paso {artifact.step} y train.steps = {steps}: no queda "
            f"ninguno; con train.init_state: all, pon train.steps por encima de {artifact.step}"
        )


def _requirements(artifact: Artifact, config: Config) -> list[tuple[str, Any, Any]]:
    before, now = artifact.config, config
    pairs = [
        (f"model.{key}", getattr(before.model, key), getattr(now.model, key)) for key in _SHAPE
    ]
    kind = "data.tokenizer.kind"
    pairs.append((kind, before.data.tokenizer.kind, now.data.tokenizer.kind))
    if config.train.init_state == "all":
        saved, wanted = before.model.identity_values(), now.model.identity_values()
        pairs += [(f"model.{key}", saved[key], value) for key, value in wanted.items()]
        pairs += [
            (f"train.{key}", getattr(before.train, key), getattr(now.train, key))
            for key in _SAME_TRAIN
        ]
        pairs.append(("hardware.dtype", before.hardware.dtype, now.hardware.dtype))
    return pairs


def parent_record(artifact: Artifact, state: InitState) -> ParentRecord:
    """Lo que el manifiesto del hijo cuenta del padre y de sus antepasados."""
    record, origin = artifact.record, artifact.history.origin
    return ParentRecord(
        sha256=taken_sha256(artifact, state),
        state=state,
        kind="checkpoint" if artifact.kind == "checkpoint" else "model",
        run_name=artifact.config.run_name,
        identity=record["identity"],
        fingerprint=record["fingerprint"],
        step=artifact.step,
        tokens=record["tokens"],
        model_sha256=artifact.files["model.safetensors"],
        data=origin.data,
        tokenizer=origin.tokenizer,
        git=origin.git,
        parent=origin.parent,
    )
