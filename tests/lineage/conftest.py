"""Un proyecto entero y diminuto: datos, un run terminado, lo exportado y la caché de DVC."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from enlace.config.schema import Config
from enlace.config.yaml_io import dump_yaml
from enlace.data.index import read_index
from enlace.files import write_bytes
from enlace.paths import CORPUS, SHARDS, TOKENIZER
from enlace.provenance import module_closure
from enlace.train.export import export_run
from enlace.train.folder import keep_tokenizer, point_to
from enlace.train.origin import collect_origin
from tests.data.builders import prepare, stories
from tests.support import make_config
from tests.train.runs import run_training

ROOT = Path(__file__).parents[2]
CHANGES: dict[str, Any] = {"train.steps": 6, "train.decay": 2, "train.save_every": 3}
RUN = Path("runs/prueba-0123456789abcdef")


def keep_in_cache(root: Path, folder: Path) -> str:
    """Guarda una carpeta como DVC: cada fichero, enlazado a un objeto que se llama como su MD5."""
    entries = []
    for file in sorted(path for path in (root / folder).rglob("*") if path.is_file()):
        md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
        stored = root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
        stored.parent.mkdir(parents=True, exist_ok=True)
        if not stored.exists():
            stored.hardlink_to(file)
        entries.append({"md5": md5, "relpath": str(file.relative_to(root / folder))})
    text = json.dumps(entries, sort_keys=True)
    md5 = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    write_bytes(root / ".dvc/cache/files/md5" / md5[:2] / f"{md5[2:]}.dir", text.encode())
    return f"{md5}.dir"


def write_lock(root: Path, *folders: Path) -> None:
    """Un `dvc.lock` de las dos etapas de datos y de la de entrenar."""
    outs = {str(path): keep_in_cache(root, path) for path in folders}
    stages: dict[str, Any] = {
        "corpus": {"deps": {"data/sample": "f" * 32}, "outs": [CORPUS]},
        "tokenize": {"deps": {str(CORPUS): outs[str(CORPUS)]}, "outs": [TOKENIZER, SHARDS]},
        "pretrain": {"deps": {}, "outs": [path for path in folders if "check" in str(path)]},
    }
    lock = {
        name: {
            "cmd": "true",
            "deps": [{"path": path, "md5": md5} for path, md5 in stage["deps"].items()],
            "outs": [{"path": str(path), "md5": outs[str(path)]} for path in stage["outs"]],
        }
        for name, stage in stages.items()
    }
    text = dump_yaml({"schema": "2.0", "stages": lock})
    (root / "dvc.lock").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """El proyecto, que ninguna prueba toca."""
    root = tmp_path_factory.mktemp("linaje") / "proyecto"
    for file in module_closure("stages.pretrain", ROOT):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    shutil.copy(ROOT / "dvc.yaml", root)
    (root / "configs/runs").mkdir(parents=True)
    config: Config = make_config(CHANGES)
    text = dump_yaml(config.model_dump(mode="json"))
    (root / "params.yaml").write_text(text, encoding="utf-8")
    prepared = prepare(root / "data", stories(40))
    for source, target in (
        (prepared.corpus, CORPUS),
        (prepared.tokenizer, TOKENIZER),
        (prepared.shards, SHARDS),
    ):
        if source != root / target:
            source.rename(root / target)
    write_lock(root, CORPUS, TOKENIZER, SHARDS)
    index = read_index(root / SHARDS)
    origin = collect_origin(config, index, CORPUS, "pretrain", None, root)
    (root / RUN).mkdir(parents=True)
    keep_tokenizer(root / TOKENIZER, root / RUN, index.tokenizer.fingerprint)
    run_training(root / RUN, config, origin=origin.model_dump(mode="json"))
    point_to(root / RUN, root / "runs/prueba")
    model, state = Path("checkpoints/model"), Path("checkpoints/state")
    export_run(root / RUN, root / model, root / state, root / TOKENIZER)
    write_lock(root, CORPUS, TOKENIZER, SHARDS, model, state)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Una copia propia, con los mismos enlaces duros entre carpetas y caché."""
    copy = tmp_path / "proyecto"
    subprocess.run(["cp", "-a", made, copy], check=True)
    monkeypatch.chdir(copy)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return copy
