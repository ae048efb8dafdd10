"""Los checkpoints: enteros o nada, comprobados, podados con criterio y estrictos al cargar."""

import errno
import hashlib
import json
import resource
import shutil
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from enlace.backends import open_device
from enlace.errors import CheckpointError
from enlace.files import sha256_file
from enlace.progress import TrainLog
from enlace.train.checkpoint import (
    CHECKPOINTS,
    DIGEST,
    MODEL,
    OPTIMIZER,
    STATE,
    newest_complete,
    prune,
    read_state,
    save_checkpoint,
    verify_checkpoint,
)
from enlace.train.resume import open_run
from enlace.train.tensors import (
    check_header,
    load_model_tensors,
    load_optimizer_tensors,
    load_rng_tensors,
    model_tensors,
    optimizer_tensors,
    read_tensors,
)
from enlace.train.trainer import build_training, train_step
from tests.support import make_config
from tests.train.runs import ORIGIN, run_training
from tests.train.streams import PeriodicStream

SHORT = {"train.steps": 6, "train.save_every": 3, "train.eval_every": 3}
CPU = torch.device("cpu")


def small_state(step: int, **changes: Any) -> dict[str, Any]:
    sections = [
        "counters",
        "schedule",
        "scaler",
        "stream",
        "clock",
        "evaluation",
        "origin",
        "config",
    ]
    state: dict[str, Any] = {key: {} for key in sections}
    state |= {"version": 1, "step": step, "identity": "i", "fingerprint": "f", "segments": []}
    return state | changes


def save_small(run_dir: Path, step: int, **changes: Any) -> Path:
    tensor = {"w": torch.full((2, 2), float(step))}
    return save_checkpoint(run_dir, small_state(step, **changes), tensor, {"step/w": tensor["w"]})


def steps_in(run_dir: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (run_dir / CHECKPOINTS).iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un entrenamiento corto terminado, que las pruebas copian antes de estropear."""
    folder = tmp_path_factory.mktemp("terminado") / "run"
    run_training(folder, make_config(SHORT))
    return folder


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def last(run_dir: Path) -> Path:
    return run_dir / CHECKPOINTS / "step_00000006"


def test_la_carpeta_tiene_lo_que_dice_el_contrato(finished: Path) -> None:
    path = last(finished)
    assert {file.name for file in path.iterdir()} == {MODEL, OPTIMIZER, STATE, DIGEST}
    state = verify_checkpoint(path)
    assert state["step"] == 6
    assert state["tokens"] == 6 * 256
    assert state["identity"] == make_config(SHORT).identity()
    assert state["config"] == make_config(SHORT).model_dump(mode="json")
    assert state["schedule"] == {"steps": 6, "decay_start": 2, "next_lr": 0.0}
    assert set(state["files"]) == {MODEL, OPTIMIZER}
    assert state["clock"]["seconds"] > 0


def test_nada_es_pickle(finished: Path) -> None:
    for file in last(finished).iterdir():
        content = file.read_bytes()
        assert not content.startswith((b"PK", b"\x80"))
        if file.suffix == ".safetensors":
            check_header(file)
        elif file.suffix == ".json":
            json.loads(content)


def test_el_peso_atado_se_guarda_una_vez(finished: Path) -> None:
    names = set(load_file(last(finished) / MODEL))
    assert "tok_emb.weight" in names
    assert "lm_head.weight" not in names
    with safe_open(last(finished) / OPTIMIZER, "pt") as file:
        moments = [name for name in file.keys() if name.startswith("exp_avg/")]  # noqa: SIM118
    assert {name.removeprefix("exp_avg/") for name in moments} == names


def test_los_nombres_no_llevan_el_prefijo_de_compile() -> None:
    config = make_config()
    training = build_training(config, open_device(config.hardware))
    compiled = cast(nn.Module, torch.compile(training.model, backend="eager"))
    assert model_tensors(compiled).keys() == model_tensors(training.model).keys()
    assert not any("_orig_mod" in name for name in model_tensors(compiled))
    train_step(training, PeriodicStream(config).batch(0), 0)
    assert optimizer_tensors(compiled, training.optimizer).keys() == (
        optimizer_tensors(training.model, training.optimizer).keys()
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
def test_un_perfil_con_compile_guarda_los_mismos_nombres(tmp_path: Path) -> None:
    run_training(tmp_path, make_config(SHORT | {"hardware.compile": True}))
    config = make_config()
    plain = build_training(config, open_device(config.hardware)).model
    assert load_file(last(tmp_path) / MODEL).keys() == model_tensors(plain).keys()


def test_cargar_no_suelta_el_peso_atado(finished: Path) -> None:
    config = make_config(SHORT)
    training = build_training(config, open_device(config.hardware))
    load_model_tensors(training.model, load_file(last(finished) / MODEL), finished)
    assert training.model.tok_emb.weight is training.model.lm_head.weight


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, DIGEST])
@pytest.mark.parametrize("damage", ["borrado", "cortado", "cambiado", "vacío"])
def test_un_checkpoint_danado_se_salta_y_se_dice_por_que(
    name: str, damage: str, run_dir: Path
) -> None:
    file = last(run_dir) / name
    content = file.read_bytes()
    match damage:
        case "borrado":
            file.unlink()
        case "cortado":
            file.write_bytes(content[: len(content) // 2])
        case "cambiado":
            file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        case "vacío":
            file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step_00000006"):
        verify_checkpoint(last(run_dir))
    found = newest_complete(run_dir)
    assert found is not None
    assert found.state["step"] == 3
    assert len(found.rejected) == 1
    assert "step_00000006" in found.rejected[0]


def test_si_ninguno_sirve_no_se_empieza_de_cero_en_silencio(run_dir: Path) -> None:
    for path in (run_dir / CHECKPOINTS).iterdir():
        (path / DIGEST).unlink()
    with pytest.raises(CheckpointError, match=r"ningún checkpoint.*step_00000003"):
        newest_complete(run_dir)


def test_sin_checkpoints_se_empieza(tmp_path: Path) -> None:
    assert newest_complete(tmp_path) is None


def test_los_temporales_de_un_corte_se_borran(run_dir: Path) -> None:
    orphan = run_dir / CHECKPOINTS / ".tmp-step_00000009-abc"
    orphan.mkdir()
    (orphan / MODEL).write_bytes(b"a medias")
    found = newest_complete(run_dir)
    assert found is not None
    assert found.state["step"] == 6
    assert not orphan.exists()


def test_un_estado_de_otra_version_se_rechaza(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="formato 99"):
        save_small(tmp_path, 1, version=99)


@pytest.mark.parametrize(("key", "value"), [("step", "1"), ("segments", {}), ("counters", None)])
def test_un_estado_sin_la_forma_debida_se_rechaza(tmp_path: Path, key: str, value: Any) -> None:
    path = save_small(tmp_path, 1)
    state = json.loads((path / STATE).read_text(encoding="utf-8")) | {key: value}
    rewrite_state(path, state)
    with pytest.raises(CheckpointError, match=f"clave {key}"):
        read_state(path)


def rewrite_state(path: Path, state: dict[str, Any]) -> None:
    """Cambia el estado y vuelve a firmarlo: un error nuestro, no un disco roto."""
    text = json.dumps(state)
    (path / STATE).write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (path / DIGEST).write_text(f"{digest}  {STATE}\n", encoding="utf-8")


def test_una_carpeta_renombrada_se_rechaza(tmp_path: Path) -> None:
    path = save_small(tmp_path, 1)
    renamed = path.rename(path.with_name("step_00000002"))
    with pytest.raises(CheckpointError, match="le cambiaron el nombre"):
        read_state(renamed)


def test_el_disco_lleno_deja_intacto_lo_anterior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = save_small(tmp_path, 1)

    def full(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No queda espacio en el dispositivo")

    with monkeypatch.context() as patch:
        patch.setattr("enlace.train.checkpoint.save_file", full)
        with pytest.raises(CheckpointError, match=r"step_00000002.*No queda espacio.*intacto"):
            save_small(tmp_path, 2)
    verify_checkpoint(previous)
    assert [path.name for path in (tmp_path / CHECKPOINTS).iterdir()] == ["step_00000001"]


def test_una_escritura_que_el_sistema_corta_de_verdad(tmp_path: Path) -> None:
    previous = save_small(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = {"w": torch.zeros(1 << 18)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(CheckpointError, match="no se ha podido escribir"):
            save_checkpoint(tmp_path, small_state(2), big, big)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    verify_checkpoint(previous)
    assert steps_in(tmp_path) == [1]


def test_no_se_poda_si_el_nuevo_no_se_pudo_guardar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config({"train.steps": 8, "train.save_every": 1, "train.keep_last": 1})
    real, calls = save_file, {"n": 0}

    def full_later(*arguments: Any, **options: Any) -> None:
        calls["n"] += 1
        if calls["n"] > 4:
            raise OSError(errno.ENOSPC, "No queda espacio en el dispositivo")
        real(*arguments, **options)

    monkeypatch.setattr("enlace.train.checkpoint.save_file", full_later)
    with pytest.raises(CheckpointError, match="No queda espacio"):
        run_training(tmp_path, config, evaluators=())
    found = newest_complete(tmp_path)
    assert found is not None
    assert found.state["step"] == 2


def test_se_guardan_los_ultimos_el_mejor_los_hitos_y_el_de_antes_de_decaer(
    tmp_path: Path,
) -> None:
    train = make_config({"train.keep_last": 2, "train.keep_every": 10}).train
    losses = {4: 3.0, 6: 1.0, 8: 2.0}
    for step in (2, 4, 6, 8, 10, 12, 14, 16, 18, 20):
        loss = losses.get(step)
        save_small(tmp_path, step, evaluation={} if loss is None else {"val_loss": loss})
    removed = prune(tmp_path, train)
    # 18 y 20, los últimos; 6, el mejor; 10 y 20, hitos; 16, el de antes de decaer (20 − 4).
    assert steps_in(tmp_path) == [6, 10, 16, 18, 20]
    assert [int(path.name[5:]) for path in removed] == [2, 4, 8, 12, 14]


def test_el_coseno_no_guarda_nada_antes_de_decaer(tmp_path: Path) -> None:
    train = make_config({"train.keep_last": 1, "train.schedule": "cosine"}).train
    for step in (2, 16, 20):
        save_small(tmp_path, step)
    prune(tmp_path, train)
    assert steps_in(tmp_path) == [20]


def test_podar_no_toca_lo_que_no_entiende(tmp_path: Path) -> None:
    train = make_config({"train.keep_last": 1}).train
    strange = save_small(tmp_path, 1)
    (strange / DIGEST).unlink()
    notes = tmp_path / CHECKPOINTS / "notas"
    notes.mkdir()
    save_small(tmp_path, 2)
    prune(tmp_path, train)
    assert strange.is_dir()
    assert notes.is_dir()


def test_el_bucle_guarda_antes_de_decaer_aunque_no_toque(tmp_path: Path) -> None:
    changes = {"train.steps": 9, "train.decay": 4, "train.save_every": 3, "train.keep_last": 1}
    run_training(tmp_path, make_config(changes), evaluators=())
    assert steps_in(tmp_path) == [5, 9]


def test_un_parametro_que_falta_o_sobra_es_un_error(finished: Path) -> None:
    config = make_config(SHORT)
    model = build_training(config, open_device(config.hardware)).model
    tensors = load_file(last(finished) / MODEL)
    missing = {name: value for name, value in tensors.items() if name != "norm.weight"}
    with pytest.raises(CheckpointError, match=r"falta norm\.weight"):
        load_model_tensors(model, missing, finished)
    with pytest.raises(CheckpointError, match=r"sobra _orig_mod\.norm"):
        load_model_tensors(model, tensors | {"_orig_mod.norm": torch.ones(1)}, finished)


@pytest.mark.parametrize(
    "wrong", [torch.ones(31), torch.ones(32, dtype=torch.float16), torch.ones(32, 1)]
)
def test_otra_forma_u_otro_dtype_es_un_error(finished: Path, wrong: torch.Tensor) -> None:
    config = make_config(SHORT)
    model = build_training(config, open_device(config.hardware)).model
    before = model.tok_emb.weight.detach().clone()
    tensors = load_file(last(finished) / MODEL) | {"norm.weight": wrong}
    with pytest.raises(CheckpointError, match=r"norm\.weight es .* y debe ser \(32,\)"):
        load_model_tensors(model, tensors, finished)
    assert torch.equal(model.tok_emb.weight, before)


def test_un_momento_que_falta_es_un_error(finished: Path) -> None:
    config = make_config(SHORT)
    training = build_training(config, open_device(config.hardware))
    tensors = load_file(last(finished) / OPTIMIZER)
    moments = {name: value for name, value in tensors.items() if not name.startswith("rng/")}
    load_optimizer_tensors(training.model, training.optimizer, moments, finished)
    del moments["exp_avg_sq/norm.weight"]
    with pytest.raises(CheckpointError, match=r"falta exp_avg_sq/norm\.weight"):
        load_optimizer_tensors(training.model, training.optimizer, moments, finished)


def test_unos_momentos_ausentes_no_pasan_por_un_optimizador_nuevo(run_dir: Path) -> None:
    path = last(run_dir)
    rng = {k: v for k, v in load_file(path / OPTIMIZER).items() if k.startswith("rng/")}
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    save_file(rng, path / OPTIMIZER)
    state["files"][OPTIMIZER] = sha256_file(path / OPTIMIZER)
    rewrite_state(path, state)
    with pytest.raises(CheckpointError, match="no casa con los 6 pasos"):
        run_training(run_dir, make_config(SHORT))


def test_el_azar_que_falta_es_un_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="rng/cpu"):
        load_rng_tensors(CPU, {}, tmp_path)
    with pytest.raises(CheckpointError, match="ilegible"):
        load_rng_tensors(CPU, {"rng/cpu": torch.zeros(3, dtype=torch.uint8)}, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (1 << 40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (8).to_bytes(8, "little") + b'{"a": 1}',
        (200).to_bytes(8, "little") + b"[" * 200,
    ],
)
def test_una_cabecera_absurda_no_se_llega_a_usar(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_tensors(path)


def test_el_modelo_cargado_no_comparte_memoria_con_el_fichero(run_dir: Path) -> None:
    config = make_config(SHORT)
    training = build_training(config, open_device(config.hardware))
    log = TrainLog(run_dir, steps=6, tokens_per_step=256)
    open_run(training, PeriodicStream(config), run_dir, log, ORIGIN)
    before = training.model.norm.weight.detach().clone()
    shutil.rmtree(run_dir)
    assert torch.equal(training.model.norm.weight, before)
    moment = training.optimizer.state[training.model.norm.weight]["exp_avg"]
    assert moment.data_ptr() != training.model.norm.weight.data_ptr()
