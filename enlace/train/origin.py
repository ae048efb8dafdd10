"""Lo que el manifiesto dice del origen: se reúne una vez, al arrancar, con todo como está."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enlace.config.schema import Config
from enlace.config.views import PIPELINE_FILE, declared_deps
from enlace.config.yaml_io import read_yaml
from enlace.data.index import ShardIndex, SplitRecord
from enlace.files import sha256_file, write_bytes
from enlace.manifest import PROVENANCE_VERSION, GitState, Origin, ParentRecord
from enlace.provenance import code_fingerprints, code_patch, git_state, module_closure

LOCK_FILE = Path("dvc.lock")
MAX_PATCH_BYTES = 1 << 22
"""Un parche mayor no se guarda: no es código, y el checkpoint no es lugar para él."""


def collect_origin(
    config: Config,
    index: ShardIndex,
    corpus: Path,
    stage: str,
    parent: ParentRecord | None,
    root: Path = Path(),
) -> Origin:
    """El origen de un entrenamiento que arranca ahora.

    Args:
        config: la configuración resuelta.
        index: el índice de los shards, ya comprobado.
        corpus: carpeta del corpus, cuyo informe se resume si está.
        stage: la etapa de `dvc.yaml`, que se ejecuta como `stages.<stage>`.
        parent: de quién parte.
        root: la raíz del proyecto.
    """
    sources = module_closure(f"stages.{stage}", root)
    report = root / corpus / "report.json"
    pipeline = root / PIPELINE_FILE
    codes = code_fingerprints(sources, root)
    return Origin.model_validate(
        {
            "version": PROVENANCE_VERSION,
            "data": index.fingerprint,
            "tokenizer": index.tokenizer.fingerprint,
            "corpus_report": sha256_file(report) if report.is_file() else None,
            "shards": shard_digests(index),
            **codes,
            "sources": {str(file): sha256_file(root / file) for file in sources},
            "git": git_state(root),
            "dvc": {
                "stage": stage,
                "pipeline_sha256": sha256_file(pipeline) if pipeline.is_file() else None,
                "lock": upstream_lock(stage, config, root),
            },
            "parent": None if parent is None else parent.model_dump(mode="json"),
        }
    )


def shard_digests(index: ShardIndex) -> dict[str, str]:
    """{fichero: SHA-256} de todo lo que el índice enumera."""
    digests: dict[str, str] = {}
    for split in index.splits.values():
        digests |= _split_digests(split)
    return digests


def _split_digests(split: SplitRecord) -> dict[str, str]:
    records = [*split.shards, *(shard.mask for shard in split.shards), split.boundaries]
    return {record.file: record.sha256 for record in records if record is not None}


def upstream_lock(stage: str, config: Config, root: Path = Path()) -> dict[str, Any]:
    """Lo que `dvc.lock` dice de las etapas de las que depende `stage`, directa o indirectamente.

    Del código no: sus huellas van aparte. Vacío si no hay `dvc.lock`.
    """
    path = root / LOCK_FILE
    stages = (read_yaml(path).get("stages") or {}) if path.is_file() else {}
    wanted = {str(dep) for dep in declared_deps(stage, config, root)}
    found: dict[str, Any] = {}
    pending = True
    while pending:
        pending = False
        for name, entry in stages.items():
            outs = _digests(entry.get("outs"))
            if name not in found and wanted & outs.keys():
                deps = _digests(entry.get("deps"))
                found[name] = {"deps": deps, "outs": outs}
                wanted |= deps.keys()
                pending = True
    return dict(sorted(found.items()))


def _digests(items: Any) -> dict[str, str]:
    digests = {}
    for item in items or []:
        if isinstance(item, Mapping) and not str(item.get("path", "")).endswith(".py"):
            digests[str(item["path"])] = str(item.get("md5", ""))
    return digests


def keep_patch(folder: Path, git: GitState, root: Path = Path()) -> Path | None:
    """Guarda en la carpeta del run el parche del código sin guardar; None si no lo hay.

    El nombre lleva su resumen: un segmento con otro código guarda otro parche y ninguno se pisa.
    """
    if git.patch_name is None:
        return None
    path = folder / git.patch_name
    patch = code_patch(root)
    same = hashlib.sha256(patch).hexdigest() == git.diff_sha256
    if same and len(patch) <= MAX_PATCH_BYTES and not path.is_file():
        write_bytes(path, patch)
    return path if path.is_file() else None
