"""La tubería entera con DVC de verdad: qué se ejecuta, qué no y qué se comparte."""

import json
import shutil
from pathlib import Path

import pytest

from tests.pipeline.support_dvc import DVC, STEPS, TRAINER, Clone, FirstRun, bare_clone

pytestmark = pytest.mark.slow

ALL = ["preflight", "corpus", "tokenize", "pretrain", "evaluate"]


def test_un_clon_recien_hecho_llega_al_final_y_repetir_no_hace_nada(first_run: FirstRun) -> None:
    clone, root = first_run.clone, first_run.clone.root
    assert first_run.output.stages == ALL
    assert f"paso {STEPS}/{STEPS}" in first_run.output.text, "el entrenador no corrió aquí"
    (folder,) = clone.run_folders()
    assert clone.newest_step() == STEPS
    assert (root / "runs/demo").resolve() == folder
    assert clone.manifest()["step"] == STEPS
    for name in ("train.tsv", "metrics.json"):
        assert (root / "reports/pretrain" / name).read_bytes() == (folder / name).read_bytes()
    for name in ("report.html", "report.md", "samples.md", "metrics.json"):
        assert (root / "reports/evaluation" / name).stat().st_size > 0
    assert sorted(first_run.git_status.splitlines()) == [
        "?? reports/corpus.html",
        "?? reports/corpus.json",
        "?? reports/corpus.md",
        "?? reports/evaluation/metrics.json",
        "?? reports/preflight/report.json",
        "?? reports/preflight/report.md",
        "?? reports/preflight/report.svg",
        "?? reports/preflight/verdict.json",
        "?? reports/pretrain/metrics.json",
        "A  dvc.lock",
    ]
    assert clone.dvc("repro", "evaluate").stages == []
    assert clone.git("status", "--porcelain") == ""


def test_cambiar_el_micro_batch_de_un_run_terminado_solo_lo_entrega_otra_vez(
    finished: Clone,
) -> None:
    weights, table = finished.weights(), finished.table()
    finished.set_params(micro_batch=4)
    done = finished.dvc("repro", "pretrain")
    assert done.stages == ["preflight", "pretrain"]
    assert "paso 1/" not in done.text
    assert finished.weights() == weights
    assert finished.table() == table
    assert len(finished.run_folders()) == 1


def test_cambiar_la_tasa_solo_entrena_y_evalua_y_volver_no_entrena(finished: Clone) -> None:
    weights, (old,), rate = finished.weights(), finished.run_folders(), finished.rate()
    before = _snapshot(old)
    finished.set_params(lr="1e-4")
    done = finished.dvc("repro", "evaluate")
    assert done.stages == ["pretrain", "evaluate"]
    assert f"paso {STEPS}/{STEPS}" in done.text
    assert finished.weights() != weights
    (new,) = set(finished.run_folders()) - {old}
    assert finished.manifest()["segments"][0]["from_step"] == 0
    assert _snapshot(old) == before
    assert (finished.root / "runs/demo").resolve() == new
    finished.set_params(lr=rate)
    back = finished.dvc("repro", "evaluate")
    assert "paso 1/" not in back.text
    assert finished.weights() == weights


def test_lo_compartido_no_se_repite_en_otro_clon(finished: Clone, tmp_path: Path) -> None:
    finished.dvc("push")
    finished.git("clone", "--quiet", str(finished.root), str(tmp_path / "other/project"))
    other = Clone(tmp_path / "other")
    shutil.copytree(finished.home / ".local", other.home / ".local")
    assert not (other.root / "checkpoints").exists()
    assert other.dvc("repro", "--pull", "evaluate").stages == []
    assert other.weights() == finished.weights()
    # Y con lo que hace quien trae primero y pregunta después.
    shutil.rmtree(other.root / "checkpoints")
    shutil.rmtree(other.root / ".dvc/cache")
    other.dvc("pull")
    assert other.dvc("repro", "evaluate").stages == []
    assert other.dvc("status", "--json", "--with-deps", "evaluate").text.strip() == "{}"
    assert other.git("status", "--porcelain") == ""
    assert not (other.root / "runs").exists()
    other.destroy()


def test_un_preflight_que_no_pasa_para_todo_antes_del_corpus(tmp_path: Path) -> None:
    clone = bare_clone(tmp_path / "clone")
    clone.set_params(memory_gib=0.001)
    text = clone.refused(*DVC, "repro", "evaluate")
    (message,) = [line for line in text.splitlines() if line.startswith("enlace: ")]
    assert "no cabe" in message
    assert "Running stage 'corpus'" not in text
    assert not (clone.root / "data/corpus").exists()
    report = json.loads((clone.root / "reports/preflight/report.json").read_text())
    assert report["passed"] is False
    assert not (clone.root / "reports/preflight/verdict.json").exists()
    assert clone.locked() == {}
    clone.destroy()


def test_sin_sello_se_mide_antes_y_un_veredicto_ajeno_se_rechaza(finished: Clone) -> None:
    shutil.rmtree(finished.root / ".enlace/preflight")
    done = finished.ok(*TRAINER)
    measured = done.text.index("Preflight superado")
    assert measured < done.text.index("modelo en checkpoints/model")
    assert list((finished.root / ".enlace/preflight").glob("*.json"))
    finished.set_params(micro_batch=4)
    text = finished.refused(*TRAINER)
    assert "es de otra configuración" in text
    assert "make preflight" in text
    (finished.root / "reports/preflight/verdict.json").unlink()
    assert "lanza make preflight" in finished.refused(*TRAINER)


def test_una_etapa_que_falla_no_deja_nada_que_dvc_acepte(finished: Clone) -> None:
    (finished.root / "data/sample/letters/roto.txt").write_bytes(b"se\xff\xfe\x00\xd8 rompe \x81")
    finished.set_params(on_bad_bytes="fail")
    before = finished.locked()
    text = finished.refused(*DVC, "repro", "corpus")
    assert "roto.txt" in text
    assert not (finished.root / "data/corpus").exists()
    assert finished.locked() == before
    assert '"corpus"' in finished.dvc("status", "--json", "corpus").text
    # Shards: el corpus se estropea después de entrenar el tokenizador.
    finished.git("checkout", "--quiet", "--", "params.yaml")
    (finished.root / "data/sample/letters/roto.txt").unlink()
    finished.dvc("repro", "corpus")
    damaged = finished.root / "data/corpus/val.jsonl.zst"
    damaged.unlink()
    damaged.write_bytes(b"\x28\xb5\x2f\xfd a medias")
    assert "val.jsonl.zst" in finished.refused(*DVC, "repro", "--single-item", "tokenize")
    assert not (finished.root / "data/shards").exists()
    assert finished.locked() == before


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
