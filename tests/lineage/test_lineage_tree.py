"""El linaje contado: el árbol, el JSON, qué es repetible y el parche de lo no guardado."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from enlace.errors import CheckpointError, EnlaceError
from enlace.lineage.exactness import exact_until
from enlace.lineage.reproduce import plan
from enlace.lineage.tree import Node, render
from enlace.manifest import GitState, Segment, read_history
from enlace.provenance import code_patch, git_state
from enlace.train.artifact import open_artifact
from enlace.train.origin import keep_patch, upstream_lock
from enlace.workspace.lineage import lineage_text, locate
from tests.lineage.conftest import CHANGES, RUN
from tests.support import make_config

MODEL = Path("checkpoints/model")


def segment(from_step: int, rewinds: list[dict[str, Any]] | None = None, **changed: Any) -> Segment:
    values = {
        "from_step": from_step,
        "started": "2026-01-01T00:00:00+00:00",
        "differences": {key.replace("__", "."): value for key, value in changed.items()},
        "code": "c" * 64,
        "code_normalized": "a" * 64,
        "git": {"commit": None, "diff_sha256": None},
        "versions": {"torch": "2.13.0"},
        "device": "cpu",
        "threads": 1,
        "resumed_from": None,
        "rewinds": rewinds or [],
    }
    return Segment.model_validate_json(json.dumps(values))


def test_el_arbol_va_del_texto_al_modelo(root: Path) -> None:
    text = lineage_text(MODEL, as_json=False)
    for part in (
        "run prueba, paso 6 de 6",
        "data/sample",
        "shards: ",
        "repetible bit a bit entero",
    ):
        assert part in text
    assert "padre: ninguno" in text
    assert lineage_text(RUN, as_json=False).startswith(f"checkpoint {RUN}/checkpoints/step_0000000")


def test_el_json_lo_dice_todo(root: Path) -> None:
    value = json.loads(lineage_text(MODEL, as_json=True))
    manifest = json.loads((MODEL / "manifest.json").read_text(encoding="utf-8"))
    for key in ("origin", "segments", "identity", "step", "files"):
        assert value[key] == manifest[key]
    assert value["exact_until"] is None
    assert value["origin"]["dvc"]["lock"].keys() == {"corpus", "tokenize"}


def test_se_encuentra_por_ruta_y_por_nombre_de_run(root: Path) -> None:
    assert locate("model", root / "checkpoints", Path()) == MODEL
    assert locate("prueba", root, Path()) == RUN
    with pytest.raises(CheckpointError, match="nada no es una carpeta ni un run"):
        locate("nada", root, Path())


def test_las_ramas_se_dibujan() -> None:
    tree = Node("a", [Node("b", [Node("c")]), Node("d")])
    assert render(tree) == ["a", "├─ b", "│  └─ c", "└─ d"]


@pytest.mark.parametrize(
    ("changed", "until"),
    [
        ({}, None),
        ({"code": ["x", "y"]}, None),
        ({"train__save_every": [1, 2], "data__workers": [1, 2]}, None),
        ({"code_normalized": ["x", "y"]}, 4),
        ({"hardware__micro_batch": [1, 2]}, 4),
        ({"versions__torch": ["a", "b"]}, 4),
        ({"device": ["a", "b"]}, 4),
    ],
)
def test_solo_lo_que_mueve_los_bits_acaba_la_promesa(changed: Any, until: int | None) -> None:
    assert exact_until([segment(0), segment(4, **changed)]) == until


def test_una_vuelta_atras_acaba_la_promesa() -> None:
    rewind = {"at_step": 9, "to_step": 3, "reason": "pico", "skipped_batches": [7, 8]}
    assert exact_until([segment(0, [rewind])]) == 3


@pytest.mark.parametrize("damage", ["falta", "sobra", "otra versión", "otro tipo"])
def test_la_procedencia_se_lee_estricta(root: Path, damage: str) -> None:
    record = json.loads((MODEL / "manifest.json").read_text(encoding="utf-8"))
    if damage == "falta":
        del record["origin"]["shards"]
    elif damage == "sobra":
        record["segments"][0]["más"] = 1
    elif damage == "otra versión":
        record["origin"]["version"] = 99
    else:
        record["segments"][0]["threads"] = "1"
    with pytest.raises(CheckpointError, match="procedencia"):
        read_history(record, MODEL)


def test_el_origen_anota_lo_que_dvc_sabia(root: Path) -> None:
    lock = upstream_lock("pretrain", make_config(CHANGES), Path())
    assert lock.keys() == {"corpus", "tokenize"}
    assert lock["corpus"]["deps"] == {"data/sample": "f" * 32}


def test_fuera_de_git_no_se_puede_repetir_y_se_dice(root: Path) -> None:
    assert "fuera de git" in str(plan(open_artifact(MODEL), Path("clon"), Path()).blocked)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "enlace").mkdir(parents=True)
    (root / "enlace/a.py").write_text("A = 1\n", encoding="utf-8")
    (root / "LEEME").write_text("hola\n", encoding="utf-8")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=P", "-c", "user.email=p@example.org", "commit", "-qm", "inicio"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def test_el_parche_lleva_a_un_clon_lo_que_no_estaba_guardado(
    repository: Path, tmp_path: Path
) -> None:
    assert code_patch(repository) == b""
    assert git_state(repository)["diff_sha256"] is None
    (repository / "enlace/a.py").write_text("A = 2\n", encoding="utf-8")
    (repository / "enlace/nuevo.py").write_text("ñ = 'á'\n", encoding="utf-8")
    (repository / "configs").mkdir()
    (repository / "configs/x.bin").write_bytes(bytes(range(256)))
    (repository / "LEEME").write_text("no cuenta\n", encoding="utf-8")
    git = GitState.model_validate(git_state(repository))
    path = keep_patch(tmp_path, git, repository)
    assert path is not None
    assert path.name == git.patch_name
    clone = tmp_path / "clon"
    subprocess.run(["git", "clone", "-q", repository, clone], check=True)
    subprocess.run(["git", "apply", path], cwd=clone, check=True)
    for name in ("enlace/a.py", "enlace/nuevo.py", "configs/x.bin"):
        assert (clone / name).read_bytes() == (repository / name).read_bytes()
    assert (clone / "LEEME").read_text(encoding="utf-8") == "hola\n"
    # Mirar no deja rastro en el repositorio: ni en el índice ni en los objetos.
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert "A  " not in status.stdout


def test_un_parche_desmedido_o_que_ya_es_otro_no_se_guarda(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "enlace/a.py").write_text("A = 2\n", encoding="utf-8")
    git = GitState.model_validate(git_state(repository))
    (repository / "enlace/a.py").write_text("A = 3\n", encoding="utf-8")
    assert keep_patch(tmp_path, git, repository) is None
    monkeypatch.setattr("enlace.train.origin.MAX_PATCH_BYTES", 1)
    git = GitState.model_validate(git_state(repository))
    assert keep_patch(tmp_path, git, repository) is None


def test_lo_que_no_es_un_checkpoint_se_dice(tmp_path: Path) -> None:
    with pytest.raises(EnlaceError, match="no es un checkpoint ni un modelo"):
        open_artifact(tmp_path)
