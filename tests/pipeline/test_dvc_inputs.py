"""Entradas que cambian: mientras se entrena, después, y solo en los comentarios."""

import os
import signal

import pytest

from tests.pipeline.support_dvc import DVC, ENLACE, STEPS, Clone, FirstRun

pytestmark = pytest.mark.slow

SCHEDULE = "enlace/train/schedule.py"
PRETRAIN = (*DVC, "repro", "pretrain")


def test_lo_que_cambia_mientras_se_entrena_impide_entregar_y_al_volver_solo_se_entrega(
    prepared: Clone, first_run: FirstRun
) -> None:
    params = (prepared.root / "params.yaml").read_bytes()
    running = prepared.start(*PRETRAIN)
    trainer = prepared.freeze_trainer()
    prepared.set_params(lr="1e-4")
    os.utime(prepared.root / "data/shards/index.json")
    tokenizer = prepared.root / "data/tokenizer/tokenizer.json"
    os.utime(tokenizer)
    source = _append(prepared, SCHEDULE, "\n_UNUSED = 1\n")
    os.kill(trainer, signal.SIGCONT)
    done = running.finish()
    assert done.code != 0
    (message,) = [line for line in done.text.splitlines() if line.startswith("enlace: ")]
    for name in ("train.lr en params.yaml", "data/shards", "data/tokenizer", SCHEDULE):
        assert name in message
    assert f"El trabajo está completo en {prepared.run_folders()[0]}" in message
    assert "pretrain" not in prepared.locked()
    assert not (prepared.root / "checkpoints").exists()
    (prepared.root / "params.yaml").write_bytes(params)
    (prepared.root / SCHEDULE).write_bytes(source)
    again = prepared.dvc("repro", "pretrain")
    assert again.stages == ["pretrain"]
    assert f"los {STEPS} pasos ya están dados " in again.text
    assert f"paso {STEPS}/" not in again.text, "ha vuelto a entrenar"
    assert prepared.weights() == first_run.clone.weights()
    assert prepared.locked()["pretrain"]["params"]["params.yaml"]["train"]["lr"] == prepared.rate()


def test_un_cambio_durante_cualquier_otra_etapa_tampoco_queda_apuntado(finished: Clone) -> None:
    """La misma guarda en corpus: sin ella `dvc.lock` diría que salió de los valores nuevos."""
    before = finished.locked()
    # La etapa misma cambia params.yaml a mitad: así el momento no depende de la velocidad.
    _append(
        finished,
        "stages/corpus.py",
        "",
        old="        report = build_corpus(",
        new='        p = Path("params.yaml")\n'
        '        p.write_text(p.read_text().replace("min_chars: 0", "min_chars: 7"))\n'
        "        report = build_corpus(",
    )
    text = finished.refused(*DVC, "repro", "corpus")
    assert "cambió: data.rules.length.min_chars en params.yaml. Repite la orden" in text
    assert finished.locked() == before


def test_un_comentario_se_acepta_y_un_cambio_de_verdad_entrena_de_nuevo(finished: Clone) -> None:
    weights, lock = finished.weights(), finished.locked()
    _append(finished, SCHEDULE, "# un comentario más\n")
    finished.ok(*ENLACE, "accept-code")
    assert finished.dvc("repro", "evaluate").stages == []
    assert finished.locked() != lock
    # Un cambio de verdad en un run terminado: se entrena de nuevo y lo anterior se aparta.
    (folder,) = finished.run_folders()
    _append(finished, SCHEDULE, "\n_FIRST = 1\n")
    assert finished.run(*ENLACE, "accept-code").code != 0
    running = finished.start(*PRETRAIN)
    trainer = finished.freeze_trainer()
    (retired,) = folder.glob("retired-*")
    assert (retired / f"step_{STEPS:08d}/model.safetensors").read_bytes() == weights
    # Y en uno a medias: sigue, avisa y lo anota.
    os.kill(trainer, signal.SIGKILL)
    running.finish()
    step = finished.newest_step()
    _append(finished, SCHEDULE, "_SECOND = 2\n")
    done = finished.dvc("repro", "pretrain")
    assert "aviso: el código ha cambiado" in done.text
    assert f"sigo desde el paso {step} " in done.text
    first, second = finished.manifest()["segments"]
    assert (first["from_step"], second["from_step"]) == (0, step)
    assert "code_normalized" in second["differences"]
    assert retired.is_dir()
    assert finished.weights() == weights, "estos cambios no tocan las cuentas"


def _append(clone: Clone, name: str, text: str, old: str = "", new: str = "") -> bytes:
    """Añade código al final de un fichero (o cambia `old`); devuelve lo que había."""
    path = clone.root / name
    before = path.read_bytes()
    path.write_bytes(before + text.encode("utf-8"))
    if old:
        clone.edit(name, old, new)
    return before
