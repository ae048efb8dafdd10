"""Partir de otro entrenamiento: qué se toma, qué se rechaza y qué entra en la identidad."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.backends import open_device
from enlace.config.load import load_config
from enlace.config.schema import Config
from enlace.config.yaml_io import dump_yaml
from enlace.errors import CheckpointError, ConfigError
from enlace.files import sha256_file
from enlace.progress import TrainLog
from enlace.train.artifact import MODEL, TOKENIZER, Artifact, open_artifact
from enlace.train.checkpoint import checkpoint_dir
from enlace.train.export import export_run
from enlace.train.parent import (
    check_compatible,
    find_parent,
    inherit_tokenizer,
    parent_record,
    resolve_parent,
    store,
    taken_sha256,
)
from enlace.train.resume import open_run
from enlace.train.trainer import build_training
from tests.support import make_config
from tests.train.runs import ORIGIN, final_state, final_tensors, run_training
from tests.train.streams import PeriodicStream

SHORT: dict[str, Any] = {
    "train.steps": 8,
    "train.decay": 3,
    "train.save_every": 4,
    "model.dropout": 0.1,
}
LONG: dict[str, Any] = {**SHORT, "train.steps": 12}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un run corto terminado, exportado y con su tokenizador en la carpeta."""
    root = tmp_path_factory.mktemp("padre")
    run = root / "runs/corto-0123456789abcdef"
    run.mkdir(parents=True)
    (run / TOKENIZER).write_text('{"tipo": "de prueba"}', encoding="utf-8")
    run_training(run, make_config(SHORT), origin=_origin(run))
    export_run(run, root / "checkpoints/model", root / "checkpoints/state", run)
    return root


@pytest.fixture(autouse=True)
def own_root(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = Path(shutil.copytree(project, tmp_path / "proyecto"))
    monkeypatch.setenv("DVC_ROOT", str(root))
    return root


def _origin(run: Path, **changes: Any) -> dict[str, Any]:
    return ORIGIN | {"tokenizer": sha256_file(run / TOKENIZER)} | changes


def _child(root: Path, path: str, changes: dict[str, Any], state: str = "weights") -> Config:
    values = {**changes, "train.init_from": path, "train.init_state": state}
    return resolve_parent(make_config(values))


def _parent(config: Config) -> Artifact:
    parent = find_parent(config.train)
    assert parent is not None
    return parent


def _train(root: Path, config: Config, folder: Path, **changes: Any) -> None:
    parent = _parent(config)
    record = parent_record(parent, config.train.init_state).model_dump(mode="json")
    origin = _origin(next((root / "runs").glob("corto-*")), parent=record, **changes)
    run_training(folder, config, origin=origin, parent=parent)


def test_un_wsd_alargado_desde_antes_del_decaimiento_es_el_largo_desde_el_principio(
    own_root: Path, tmp_path: Path
) -> None:
    run_training(tmp_path / "largo", make_config(LONG))
    child = _child(own_root, "checkpoints/state", LONG, "all")
    _train(own_root, child, tmp_path / "rama")
    whole, branch = final_tensors(tmp_path / "largo"), final_tensors(tmp_path / "rama")
    assert whole.keys() == branch.keys()
    assert all(torch.equal(whole[name], branch[name]) for name in whole)
    state = final_state(tmp_path / "rama")
    assert state["counters"] == final_state(tmp_path / "largo")["counters"]
    assert state["segments"][0]["from_step"] == 5
    parent = open_artifact(tmp_path / "rama").history.origin.parent
    assert parent is not None
    assert (parent.run_name, parent.step, parent.sha256) == ("prueba", 5, child.train.init_sha256)


def test_con_weights_se_empieza_en_el_paso_cero_con_los_pesos_del_padre(
    own_root: Path, tmp_path: Path
) -> None:
    child = _child(own_root, "checkpoints/model", {**LONG, "train.seed": 99, "train.lr": 1e-4})
    training = build_training(child, open_device(child.hardware))
    parent = _parent(child)
    origin = _origin(next((own_root / "runs").glob("corto-*")))
    log = TrainLog(tmp_path / "r", steps=12, tokens_per_step=256)
    with log:
        open_run(training, PeriodicStream(child), tmp_path / "r", log, origin, parent)
    expected = final_tensors(next((own_root / "runs").glob("corto-*")))
    for name, value in training.model.named_parameters():
        assert torch.equal(value, expected[name]), name
    assert training.counters.step == 0
    assert not training.optimizer.state


def test_mover_la_carpeta_no_cambia_la_identidad_y_otro_contenido_si(own_root: Path) -> None:
    one = _child(own_root, "checkpoints/state", LONG)
    shutil.move(own_root / "checkpoints/state", own_root / "otro")
    moved = _child(own_root, "otro", LONG)
    assert one.identity() == moved.identity()
    other = _child(own_root, "checkpoints/model", LONG)  # los pesos finales: otros
    assert len({one.identity(), other.identity(), make_config(LONG).identity()}) == 3
    run = next((own_root / "runs").glob("corto-*"))
    assert _child(own_root, str(run.relative_to(own_root)), LONG).identity() == other.identity()


def test_el_mismo_padre_con_su_estado_es_otra_identidad(own_root: Path) -> None:
    weights, everything = (
        _child(own_root, "checkpoints/state", LONG, state) for state in ("weights", "all")
    )
    assert weights.identity() != everything.identity()


def test_el_padre_sobrevive_a_que_dvc_borre_las_salidas(own_root: Path) -> None:
    child = _child(own_root, "checkpoints/state", LONG, "all")
    expected = sha256_file(own_root / "checkpoints/state" / MODEL)
    shutil.rmtree(own_root / "checkpoints")
    assert sha256_file(_parent(child).path / MODEL) == expected
    assert resolve_parent(child, child.train) == child


def test_un_corte_al_guardar_el_padre_no_deja_restos(own_root: Path) -> None:
    leftover = own_root / ".enlace/parents/.tmp-0123456789ab-fedcba9876543210"
    leftover.mkdir(parents=True)
    (leftover / MODEL).write_bytes(b"a medias")
    child = _child(own_root, "checkpoints/state", LONG, "all")
    kept = [path.name for path in leftover.parent.iterdir() if path.is_dir()]
    assert kept == [child.train.init_sha256[:16]]


def test_el_resultado_en_la_carpeta_del_padre_no_pasa_a_ser_su_propio_padre(
    own_root: Path, tmp_path: Path
) -> None:
    child = _child(own_root, "checkpoints/state", LONG, "all")
    _train(own_root, child, tmp_path / "rama")
    run = next((own_root / "runs").glob("corto-*"))
    export_run(
        tmp_path / "rama", own_root / "checkpoints/model", own_root / "checkpoints/state", run
    )
    assert resolve_parent(child, child.train) == child
    # Pedir otra cosa sí es partir de lo que hay ahora en la carpeta: de su resultado.
    longer = child.train.model_copy(update={"steps": 2 * child.train.steps, "init_sha256": ""})
    grandchild = resolve_parent(child.model_copy(update={"train": longer}), child.train)
    parents = [_parent(config) for config in (child, grandchild)]
    assert [parent.config.train.init_sha256 for parent in parents] == ["", child.train.init_sha256]


def test_una_copia_en_la_ruta_basta_si_es_el_contenido_pedido(own_root: Path) -> None:
    child = _child(own_root, "checkpoints/state", LONG)
    shutil.rmtree(store())
    assert taken_sha256(_parent(child), "weights") == child.train.init_sha256
    shutil.rmtree(store())
    shutil.rmtree(own_root / "checkpoints/state")
    shutil.copytree(own_root / "checkpoints/model", own_root / "checkpoints/state")
    with pytest.raises(CheckpointError, match=r"train\.init_sha256 pide"):
        find_parent(child.train)


def test_una_ruta_que_no_existe_es_un_error_claro(own_root: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nada.* no existe o no es una carpeta"):
        _child(own_root, "nada", LONG)


def test_un_params_con_ruta_y_sin_resumen_no_se_lee(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    values = make_config({"train.init_from": "checkpoints/state"}).model_dump(mode="json")
    path.write_text(dump_yaml(values), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"sin train\.init_sha256.*make params"):
        load_config(path)


def test_un_padre_danado_no_se_guarda(own_root: Path) -> None:
    path = own_root / "checkpoints/model" / MODEL
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{MODEL} está dañado"):
        _child(own_root, "checkpoints/model", LONG)
    assert not list(store().iterdir())


def test_un_modelo_exportado_no_tiene_estado(own_root: Path) -> None:
    with pytest.raises(CheckpointError, match="solo lleva pesos"):
        _child(own_root, "checkpoints/model", LONG, "all")


@pytest.mark.parametrize(
    ("key", "value", "state"),
    [
        ("model.n_layer", 1, "weights"),
        ("model.n_kv_head", 4, "weights"),
        ("model.ffn_dim", 64, "weights"),
        ("model.tie_embeddings", False, "weights"),
        ("train.seed", 8, "all"),
        ("train.optimizer", "muon", "all"),
        ("model.rope_theta", 5e5, "all"),
        ("hardware.dtype", "bf16", "all"),
    ],
)
def test_se_nombra_la_primera_clave_que_no_casa(
    own_root: Path, key: str, value: Any, state: str
) -> None:
    change = {"model.ffn_multiple_of": value} if key == "model.ffn_dim" else {key: value}
    with pytest.raises(CheckpointError, match=rf"{key} = .* y aquí vale"):
        _child(own_root, "checkpoints/state", {**LONG, **change}, state)


def test_el_contexto_theta_y_el_optimizador_pueden_cambiar_con_los_pesos(own_root: Path) -> None:
    changes: dict[str, Any] = {"model.seq_len": 64, "model.rope_theta": 5e5}
    changes |= {"train.tokens_per_step": 512, "train.optimizer": "muon"}
    artifact = open_artifact(own_root / "checkpoints/model")
    check_compatible(artifact, make_config({**LONG, **changes}))


def test_con_el_estado_deben_quedar_pasos(own_root: Path) -> None:
    with pytest.raises(CheckpointError, match=r"pon train\.steps por encima de 5"):
        _child(own_root, "checkpoints/state", {**SHORT, "train.steps": 5}, "all")


def test_otro_tokenizador_se_rechaza_con_las_dos_huellas(own_root: Path, tmp_path: Path) -> None:
    child = _child(own_root, "checkpoints/model", LONG)
    with pytest.raises(CheckpointError, match="no significan lo mismo"):
        _train(own_root, child, tmp_path / "rama", tokenizer="e" * 64)


def test_el_tokenizador_se_hereda(own_root: Path, tmp_path: Path) -> None:
    run = next((own_root / "runs").glob("corto-*"))
    step = checkpoint_dir(run, 8).relative_to(own_root)
    for path in ("checkpoints/model", "checkpoints/state", str(step)):
        inherit_tokenizer(_parent(_child(own_root, path, LONG)), tmp_path / "tokenizer")
        assert (tmp_path / "tokenizer" / TOKENIZER).read_bytes() == (run / TOKENIZER).read_bytes()
        shutil.rmtree(store())
