"""De la carpeta de un run al modelo que se entrega, y de vuelta.

    checkpoints/model/   model.safetensors, config.json, tokenizer.json, manifest.json y su resumen
    checkpoints/state/   el checkpoint completo desde el que se puede seguir, y su tokenizador

Lo entregado no lleva fechas salvo en los segmentos: entregar dos veces el mismo checkpoint da los
mismos bytes.
"""

import shutil
from pathlib import Path
from typing import Any

import torch

from enlace.config.documents import kernel_for_mask
from enlace.config.schema import Config
from enlace.config.stored import stored_config
from enlace.errors import CheckpointError
from enlace.files import (
    atomic_dir,
    remove_temporaries,
    sha256_file,
    write_json,
    write_text,
)
from enlace.manifest import read_history
from enlace.model.transformer import Transformer
from enlace.train.artifact import (
    CONFIG,
    MANIFEST,
    MANIFEST_DIGEST,
    MANIFEST_VERSION,
    TOKENIZER,
    read_signed,
    signature,
)
from enlace.train.checkpoint import (
    MODEL,
    STATE,
    Found,
    checkpoint_dir,
    newest_complete,
    verify_checkpoint,
    writing,
)
from enlace.train.container import read_tensors
from enlace.train.resume import saved_config
from enlace.train.retention import is_branch_point
from enlace.train.schedule import decay_start
from enlace.train.tensors import load_model_tensors
from enlace.train.untrusted import check_digests, read_json_object


def export_run(
    run_dir: Path, out_model: Path, out_state: Path, tokenizer_dir: Path
) -> dict[str, Any]:
    """Entrega un entrenamiento terminado como dos carpetas enteras y devuelve el manifiesto.

    Los ficheros se copian, no se enlazan: DVC vuelve de solo lectura lo que entrega y lo comparte
    con su caché.

    Raises:
        CheckpointError: no hay checkpoint, quedan pasos, falta el tokenizador o no se puede
            escribir.
    """
    found = newest_complete(run_dir)
    if found is None:
        raise CheckpointError(f"{run_dir} no tiene ningún checkpoint que exportar")
    config = saved_config(found)
    if found.state["step"] < config.train.steps:
        raise CheckpointError(
            f"{found.path} va por el paso {found.state['step']} de {config.train.steps}; "
            "termina el entrenamiento antes de exportar"
        )
    tokenizer = tokenizer_dir / TOKENIZER
    if not tokenizer.is_file():
        raise CheckpointError(f"falta {tokenizer}; vuelve a crearlo con dvc repro tokenize")
    branch = _branch_checkpoint(run_dir, found, config)
    patches = _patches(run_dir, found)
    # Lo que dejó a medias una entrega cortada. Estas carpetas solo las escribe esta etapa.
    for out in (out_model, out_state):
        remove_temporaries(out.parent, out.name)
    with writing(out_model), atomic_dir(out_model) as temporary:
        for file in (found.path / MODEL, tokenizer, *patches):
            shutil.copyfile(file, temporary / file.name)
        write_json(temporary / CONFIG, found.state["config"])
        files = {file.name: sha256_file(file) for file in sorted(temporary.iterdir())}
        write_json(temporary / MANIFEST, _manifest(found, branch) | {"files": files})
        digest = sha256_file(temporary / MANIFEST)
        write_text(temporary / MANIFEST_DIGEST, signature(digest, MANIFEST))
    with writing(out_state), atomic_dir(out_state) as temporary:
        for file in (*sorted(branch.path.iterdir()), tokenizer, *patches):
            shutil.copyfile(file, temporary / file.name)
    return read_manifest(out_model)


def read_manifest(path: Path) -> dict[str, Any]:
    """El manifiesto de un modelo exportado, tras comprobar los ficheros que enumera.

    Raises:
        CheckpointError: falta el manifiesto o un fichero, o alguno no es el que se exportó.
    """
    manifest = read_signed(path, MANIFEST, MANIFEST_DIGEST)
    if manifest.get("version") != MANIFEST_VERSION:
        raise CheckpointError(
            f"{path / MANIFEST} tiene el formato {manifest.get('version')!r} y esta versión de "
            f"enlace lee el {MANIFEST_VERSION}"
        )
    check_digests(path, manifest.get("files"), required=(MODEL, CONFIG, TOKENIZER))
    return manifest


def load_model(
    path: Path, sdpa_backend: str, device: torch.device | str
) -> tuple[Transformer, Config]:
    """Carga un modelo exportado, en modo eval, y la configuración con la que se entrenó.

    Args:
        path: carpeta como `checkpoints/model`.
        sdpa_backend: núcleo de atención con el que se va a usar.
        device: dispositivo de los pesos.

    Raises:
        CheckpointError: algo falta, está dañado o no casa con la configuración, o ese núcleo no
            admite la máscara de documentos con la que se entrenó.
    """
    manifest = read_manifest(path)
    config = stored_config(read_json_object(path / CONFIG), path / CONFIG)
    if config.identity() != manifest.get("identity"):
        raise CheckpointError(f"{path / CONFIG} no es la configuración que dice {MANIFEST}")
    mask = config.data.document_mask
    kernel = kernel_for_mask(torch.device(device).type, sdpa_backend)
    if mask != "none" and kernel is not None:
        raise CheckpointError(
            f"el modelo de {path} se entrenó con data.document_mask = {mask} y la atención "
            f"{sdpa_backend} no admite máscara en {device}; pon hardware.sdpa_backend: {kernel}"
        )
    hardware = config.hardware
    model = Transformer(
        config.model,
        sdpa_backend,
        hardware.loss_chunk_rows,
        document_mask=mask,
        loss_chunk_columns=hardware.loss_chunk_columns,
    )
    load_model_tensors(model, read_tensors(path / MODEL), path / MODEL)
    return model.to(device).eval(), config


def _branch_checkpoint(run_dir: Path, final: Found, config: Config) -> Found:
    """El checkpoint para seguir: con WSD, el de justo antes de decaer; si no, el último."""
    start = decay_start(config.train)
    path = checkpoint_dir(run_dir, start)
    if not (is_branch_point(start, config.train) and path.is_dir()):
        return final
    return Found(path, verify_checkpoint(path), ())


def _patches(run_dir: Path, found: Found) -> list[Path]:
    """Los parches del código sin guardar con el que corrió cada segmento; los que se guardaron."""
    history = read_history(found.state, found.path / STATE)
    names = {segment.git.patch_name for segment in history.segments} - {None}
    return [run_dir / name for name in sorted(map(str, names)) if (run_dir / name).is_file()]


def _manifest(found: Found, branch: Found) -> dict[str, Any]:
    state = found.state
    origin = state["origin"]
    return {
        "version": MANIFEST_VERSION,
        "run_name": state["config"]["run_name"],
        "identity": state["identity"],
        "fingerprint": state["fingerprint"],
        "data": origin.get("data"),
        "tokenizer": origin.get("tokenizer"),
        "step": state["step"],
        "tokens": state["tokens"],
        "counters": state["counters"],
        "val_loss": state["evaluation"].get("val_loss"),
        "evaluation": state["evaluation"],
        "state_step": branch.state["step"],
        "origin": origin,
        "segments": state["segments"],
    }
