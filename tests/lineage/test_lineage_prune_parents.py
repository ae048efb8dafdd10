"""Las copias de padres: se borran las que nadie de los que quedan nombra, y ninguna otra."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from enlace.config.yaml_io import dump_yaml
from enlace.errors import LockError
from enlace.files import sha256_file, write_json
from enlace.process import exclusive_lock
from enlace.train.artifact import MANIFEST, MANIFEST_DIGEST, open_artifact, signature
from enlace.train.parent import freeze, parent_record, store, taken_sha256
from enlace.workspace.prune import prune_lines
from enlace.workspace.prune_parents import remove_parent, stored_parents
from tests.lineage.conftest import CHANGES, RUN, keep_in_cache
from tests.support import make_config

MODEL = Path("checkpoints/model")


@pytest.fixture
def parent(root: Path) -> str:
    """El resumen de la copia de un padre, que de momento nadie nombra."""
    artifact = open_artifact(MODEL)
    digest = taken_sha256(artifact, "weights")
    freeze(artifact, digest)
    return digest


def write_params(path: Path, digest: str) -> None:
    """Un `params.yaml` que parte de ese padre."""
    changes = {**CHANGES, "train.init_from": "checkpoints/model", "train.init_sha256": digest}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump_yaml(make_config(changes).model_dump(mode="json")), encoding="utf-8")


def name_in_record(folder: Path, digest: str) -> None:
    """Hace que el modelo de `folder` diga que parte de ese padre."""
    record = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    parent = parent_record(open_artifact(MODEL), "weights").model_dump(mode="json")
    record["origin"]["parent"] = parent | {"sha256": digest}
    for name in (MANIFEST, MANIFEST_DIGEST):
        (folder / name).unlink()
    write_json(folder / MANIFEST, record)
    text = signature(sha256_file(folder / MANIFEST), MANIFEST)
    (folder / MANIFEST_DIGEST).write_text(text, encoding="utf-8")


def commit(reference: str) -> None:
    """Guarda lo que hay en git y lo deja solo en `reference`."""
    author = ["-c", "user.name=P", "-c", "user.email=p@example.org"]
    for command in (
        ["init", "-q"],
        ["add", "params.yaml"],
        [*author, "commit", "-qm", "con padre"],
        ["update-ref", reference, "HEAD"],
        ["rm", "-q", "--cached", "params.yaml"],
        [*author, "commit", "-qm", "sin él"],
    ):
        subprocess.run(["git", *command], check=True)


def stash() -> None:
    """Una cola de DVC con dos experimentos; el del padre no es el último."""
    commit("refs/heads/aparte")
    log = ["update-ref", "--create-reflog", "-m", "experimento"]
    for where in ("aparte", "HEAD"):
        subprocess.run(["git", *log, "refs/exps/celery/stash", where], check=True)
    subprocess.run(["git", "branch", "-qD", "aparte"], check=True)


def in_params(digest: str) -> None:
    write_params(Path("params.yaml"), digest)


def in_experiment(digest: str) -> None:
    write_params(Path(".dvc/tmp/exps/tmpabc/params.yaml"), digest)


def in_git(reference: str) -> Callable[[str], None]:
    def use(digest: str) -> None:
        before = Path("params.yaml").read_text(encoding="utf-8")
        write_params(Path("params.yaml"), digest)
        stash() if reference.endswith("stash") else commit(reference)
        Path("params.yaml").write_text(before, encoding="utf-8")

    return use


def in_model(digest: str) -> None:
    name_in_record(MODEL, digest)


def in_copied_model(digest: str) -> None:
    name_in_record(Path(shutil.copytree(MODEL, "mis modelos/uno")), digest)


def in_cache(digest: str) -> None:
    copy = Path(shutil.copytree(MODEL, "data/otro"))
    name_in_record(copy, digest)
    keep_in_cache(Path(), copy)
    shutil.rmtree(copy)


def in_other_parent(digest: str) -> None:
    child = Path(shutil.copytree(store() / digest[:16], store() / ("e" * 16)))
    name_in_record(child, digest)
    write_params(Path("params.yaml"), "e" * 64)


USES: dict[str, Callable[[str], None]] = {
    "params": in_params,
    "experimento": in_experiment,
    "rama": in_git("refs/heads/otra"),
    "experimento guardado": in_git("refs/exps/aa/otro"),
    "cola": in_git("refs/exps/celery/stash"),
    "modelo": in_model,
    "modelo copiado": in_copied_model,
    "caché": in_cache,
    "otro padre": in_other_parent,
}


@pytest.mark.parametrize("use", USES)
def test_lo_que_alguien_nombra_se_queda(use: str, parent: str) -> None:
    assert [found.kept for found in stored_parents(Path())] == [None]
    USES[use](parent)
    found = {copy.folder.name: copy.kept for copy in stored_parents(Path())}
    assert str(found[parent[:16]]).startswith("lo nombra ")
    list(prune_lines(Path(), yes=True))
    assert (store() / parent[:16]).is_dir()


def test_primero_se_ensena_y_con_yes_se_borra(parent: str) -> None:
    folder = store() / parent[:16]
    size = sum(path.stat().st_size for path in folder.iterdir())
    (found,) = stored_parents(Path())
    assert (found.nbytes, found.kept) == (size, None)
    expected = f"el padre {parent[:16]}, de prueba, paso 6"
    assert any(
        line.startswith(f"se puede borrar {expected}") for line in prune_lines(Path(), False)
    )
    assert folder.is_dir()
    assert any(line.startswith(f"borrado {expected}") for line in prune_lines(Path(), True))
    assert not list(store().iterdir())
    assert list(prune_lines(Path(), True))[-1] == "no hay nada que borrar"


def test_el_padre_de_un_run_que_se_borra_cae_con_el_y_se_anuncia(parent: str) -> None:
    (state,) = (RUN / "checkpoints").glob("step_00000006/state.json")
    state.write_text(state.read_text().replace('"init_sha256": ""', f'"init_sha256": "{parent}"'))
    assert str(state) in str(stored_parents(Path())[0].kept)
    assert [found.kept for found in stored_parents(Path(), gone=[RUN])] == [None]


def test_con_un_entrenamiento_en_marcha_no_se_toca_ninguno(parent: str) -> None:
    with exclusive_lock(RUN / "lock"):
        assert "entrenamiento en marcha" in str(stored_parents(Path())[0].kept)


def test_mientras_se_guarda_un_padre_no_se_borra_otro(parent: str) -> None:
    with exclusive_lock(store().with_suffix(".lock")), pytest.raises(LockError):
        remove_parent(store() / parent[:16])
    assert (store() / parent[:16]).is_dir()
