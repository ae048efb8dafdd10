"""La entrega: dos carpetas enteras, comprobables, y un modelo que vuelve igual."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from enlace.errors import CheckpointError, UnfinishedError
from enlace.files import sha256_file
from enlace.train.artifact import CONFIG, MANIFEST, MANIFEST_DIGEST, TOKENIZER, signature
from enlace.train.checkpoint import MODEL, verify_checkpoint
from enlace.train.export import export_run, load_model, read_manifest
from tests.support import make_config
from tests.train.runs import ORIGIN, final_tensors, run_training
from tests.train.streams import PeriodicStream

CHANGES = {"train.steps": 6, "train.decay": 2, "train.save_every": 5}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un run terminado y su tokenizador."""
    folder = tmp_path_factory.mktemp("origen")
    run_training(folder / "run", make_config(CHANGES))
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / TOKENIZER).write_text('{"tipo": "de prueba"}', encoding="utf-8")
    return folder


def export(source: Path, out: Path) -> Path:
    export_run(source / "run", out / "model", out / "state", source / "tokenizer")
    return out


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_se_entregan_pesos_configuracion_tokenizador_y_manifiesto(
    source: Path, tmp_path: Path
) -> None:
    model = export(source, tmp_path) / "model"
    assert set(files(model)) == {MODEL, CONFIG, TOKENIZER, MANIFEST, MANIFEST_DIGEST}
    config, manifest = make_config(CHANGES), read_manifest(model)
    assert manifest["identity"] == config.identity()
    assert manifest["fingerprint"] == config.fingerprint()
    assert (manifest["data"], manifest["tokenizer"]) == (ORIGIN["data"], ORIGIN["tokenizer"])
    assert manifest["origin"] == ORIGIN
    assert (manifest["step"], manifest["tokens"]) == (6, 6 * 256)
    assert manifest["val_loss"] > 0
    assert manifest["state_step"] == 4
    assert len(manifest["segments"]) == 1


def test_el_modelo_vuelve_igual(source: Path, tmp_path: Path) -> None:
    model, config = load_model(export(source, tmp_path) / "model", "math", "cpu")
    assert config.training_values() == make_config(CHANGES).training_values()
    assert not model.training
    expected = final_tensors(source / "run")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, expected[name]), name
    assert model.tok_emb.weight is model.lm_head.weight


def test_el_estado_es_el_de_antes_de_decaer_y_esta_completo(source: Path, tmp_path: Path) -> None:
    state = verify_checkpoint(export(source, tmp_path) / "state")
    assert state["step"] == 4


def test_con_coseno_el_estado_es_el_final(tmp_path: Path, source: Path) -> None:
    config = make_config(CHANGES | {"train.schedule": "cosine"})
    run_training(tmp_path / "run", config)
    export_run(tmp_path / "run", tmp_path / "m", tmp_path / "s", source / "tokenizer")
    assert verify_checkpoint(tmp_path / "s")["step"] == 6


def test_entregar_dos_veces_da_los_mismos_bytes(source: Path, tmp_path: Path) -> None:
    first, second = export(source, tmp_path / "a"), export(source, tmp_path / "b")
    for folder in ("model", "state"):
        assert files(first / folder) == files(second / folder)
    export(source, tmp_path / "a")
    assert files(tmp_path / "a" / "model") == files(second / "model")


def test_las_fechas_solo_estan_en_los_segmentos(source: Path, tmp_path: Path) -> None:
    manifest = read_manifest(export(source, tmp_path) / "model")
    started = manifest["segments"][0].pop("started")
    assert started[:10] not in json.dumps(manifest)


def test_los_ficheros_se_copian_y_no_se_enlazan(source: Path, tmp_path: Path) -> None:
    for file in (export(source, tmp_path) / "state").iterdir():
        assert file.stat().st_nlink == 1


@pytest.mark.parametrize("name", [MODEL, CONFIG, TOKENIZER, MANIFEST])
@pytest.mark.parametrize("damage", ["borrado", "cambiado"])
def test_un_modelo_danado_no_se_carga(source: Path, tmp_path: Path, name: str, damage: str) -> None:
    model = export(source, tmp_path) / "model"
    if damage == "borrado":
        (model / name).unlink()
    else:
        (model / name).write_bytes(b"{" + (model / name).read_bytes())
    with pytest.raises(CheckpointError, match=name):
        load_model(model, "math", "cpu")


def test_una_configuracion_cambiada_y_refirmada_se_detecta(source: Path, tmp_path: Path) -> None:
    model = export(source, tmp_path) / "model"
    text = (model / CONFIG).read_text(encoding="utf-8").replace('"n_layer": 2', '"n_layer": 1')
    (model / CONFIG).write_text(text, encoding="utf-8")
    manifest = json.loads((model / MANIFEST).read_text(encoding="utf-8"))
    manifest["files"][CONFIG] = sha256_file(model / CONFIG)
    (model / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    signed = signature(sha256_file(model / MANIFEST), MANIFEST)
    (model / MANIFEST_DIGEST).write_text(signed, encoding="utf-8")
    with pytest.raises(CheckpointError, match="no es la configuración que dice"):
        load_model(model, "math", "cpu")


def test_un_entrenamiento_a_medias_no_se_entrega(tmp_path: Path, source: Path) -> None:
    config = make_config(CHANGES)
    with pytest.raises(UnfinishedError):
        run_training(tmp_path / "run", config, stream=PeriodicStream(config, stop_at=2))
    with pytest.raises(CheckpointError, match="paso 3 de 6"):
        export_run(tmp_path / "run", tmp_path / "m", tmp_path / "s", source / "tokenizer")
    assert not (tmp_path / "m").exists()


def test_una_carpeta_vacia_no_se_entrega(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="ningún checkpoint que exportar"):
        export_run(tmp_path, tmp_path / "m", tmp_path / "s", tmp_path)


def test_sin_tokenizador_no_se_entrega(source: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"falta .*tokenizer\.json"):
        export_run(source / "run", tmp_path / "m", tmp_path / "s", tmp_path)


def test_si_falta_el_de_antes_de_decaer_se_entrega_el_final(source: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(source / "run", tmp_path / "run"))
    shutil.rmtree(run / "checkpoints" / "step_00000004")
    manifest = export_run(run, tmp_path / "m", tmp_path / "s", source / "tokenizer")
    assert manifest["state_step"] == 6
