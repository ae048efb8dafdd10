"""Los temporales que deja un corte en cualquier sitio los recoge la siguiente llamada."""

from pathlib import Path

from enlace.files import TEMPORARY_PREFIX
from enlace.progress import METRICS, TABLE, StepClock, TrainLog
from enlace.train.artifact import TOKENIZER
from enlace.train.export import export_run
from enlace.train.folder import point_to

TOKEN = "0123456789ab"


def temporaries(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"{TEMPORARY_PREFIX}*"))


def test_seguir_recoge_los_del_registro_y_los_informes(tmp_path: Path) -> None:
    reports = tmp_path / "informes"
    reports.mkdir()
    for folder in (tmp_path, reports):
        for name in (TABLE, METRICS):
            (folder / f"{TEMPORARY_PREFIX}{TOKEN}-{name}").touch()
    other = reports / f"{TEMPORARY_PREFIX}{TOKEN}-ajeno.json"
    other.touch()
    log = TrainLog(tmp_path, steps=2, tokens_per_step=1, reports_dir=reports)
    log.restart(0, StepClock().state_dict(), {})
    assert temporaries(tmp_path) == [other]


def test_entregar_recoge_los_de_una_entrega_cortada(run_dir: Path, tmp_path: Path) -> None:
    tokenizer, out = tmp_path / "tokenizer", tmp_path / "checkpoints"
    tokenizer.mkdir()
    (tokenizer / TOKENIZER).write_text("{}", encoding="utf-8")
    for name in ("model", "state"):
        (out / f"{TEMPORARY_PREFIX}{TOKEN}-{name}").mkdir(parents=True)
    export_run(run_dir, out / "model", out / "state", tokenizer)
    assert temporaries(tmp_path) == []


def test_apuntar_a_la_carpeta_recoge_el_enlace_a_medias(tmp_path: Path) -> None:
    folder, link = tmp_path / "demo-123", tmp_path / "demo"
    folder.mkdir()
    (tmp_path / f"{TEMPORARY_PREFIX}{folder.name}").symlink_to("demo-roto")
    point_to(folder, link)
    assert link.resolve() == folder
    assert temporaries(tmp_path) == []
