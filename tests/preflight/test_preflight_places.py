"""Lo que el preflight hace si no puede escribir, o si alguien tocó lo que escribió."""

import errno
import json
import os
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enlace.config.schema import Config
from enlace.errors import user_errors
from enlace.preflight.gate import require_preflight, run_preflight
from enlace.preflight.measurement import DiskUse, Outcome
from enlace.preflight.report import write_preflight_report
from enlace.preflight.stamp import STAMP_FOLDER, has_stamp, write_stamp
from enlace.preflight.verdict import judge, verdict_key, write_verdict
from tests.preflight.support_preflight import GIB, made_up, memory
from tests.support import make_config

CONFIG = make_config()
KEY = "a" * 64


def never(_: Config, __: Path) -> Outcome:
    raise AssertionError("midió")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_una_carpeta_de_informes_que_no_se_deja_escribir_se_dice_antes_de_medir(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / "reports/tmpxyz"))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(SystemExit) as caught, user_errors():
        run_preflight(CONFIG, {}, tmp_path, tmp_path / "reports", Console(file=StringIO()), never)
    assert caught.value.code == 1
    message = capsys.readouterr().err
    assert message.startswith(f"enlace: {tmp_path / 'reports'}: ")
    assert message.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_la_carpeta_de_los_sellos_tambien_se_mira_antes_de_medir(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".enlace").mkdir()
    (tmp_path / STAMP_FOLDER).write_text("mío", encoding="utf-8")
    reports = tmp_path / "reports"
    with pytest.raises(SystemExit), user_errors():
        run_preflight(CONFIG, {}, tmp_path, reports, Console(file=StringIO()), never)
    write_verdict(reports / "verdict.json", verdict_key({}))
    with pytest.raises(SystemExit), user_errors():
        require_preflight(
            CONFIG, {}, tmp_path, reports / "verdict.json", Console(file=StringIO()), never
        )
    said = capsys.readouterr().err
    assert said.count(f"enlace: {tmp_path / STAMP_FOLDER}: hay un fichero") == 2


@pytest.mark.parametrize("last", ["report.svg", "report.md", "report.json"])
def test_con_el_disco_lleno_no_queda_un_informe_a_medias(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falle al escribir el que falle de los tres, no queda ninguno, ni el de la vez anterior."""
    verdict = judge(CONFIG, made_up())
    write_preflight_report(CONFIG, made_up(), verdict, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    replace = os.replace

    def full(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        replace(source, target, **options)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_preflight_report(CONFIG, made_up(), verdict, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_un_fichero_en_el_sitio_de_los_informes_se_dice_y_no_se_toca(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reports").write_text("mío", encoding="utf-8")
    for folder in (tmp_path / "reports", tmp_path / "reports/preflight"):
        with pytest.raises(SystemExit), user_errors():
            run_preflight(CONFIG, {}, tmp_path, folder, Console(file=StringIO()), never)
        assert "hay un fichero donde debería haber una carpeta" in capsys.readouterr().err
    assert (tmp_path / "reports").read_text("utf-8") == "mío"


@pytest.mark.parametrize(
    "change",
    [
        {"key": "b" * 64},
        {"machine": "otra"},
        {"torch": "1.0"},
        {"device": 7},
        {"device": None},
        {"revoked": True},
    ],
    ids=str,
)
def test_un_sello_retocado_no_vale(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_stamp(tmp_path, "maquina00001", KEY, "cpu")
    assert has_stamp(tmp_path, "maquina00001", KEY)
    stamp = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(stamp | change), encoding="utf-8")
    assert not has_stamp(tmp_path, "maquina00001", KEY)


@pytest.mark.parametrize("field", ["machine", "key", "device", "torch"])
def test_a_un_sello_no_le_puede_faltar_nada(tmp_path: Path, field: str) -> None:
    path = write_stamp(tmp_path, "maquina00001", KEY, "cpu")
    stamp = json.loads(path.read_text("utf-8"))
    del stamp[field]
    path.write_text(json.dumps(stamp), encoding="utf-8")
    assert not has_stamp(tmp_path, "maquina00001", KEY)


def test_con_los_pasos_que_aconseja_lo_medido_hay_disco() -> None:
    config = make_config({"train.steps": 100_000})
    disk = DiskUse(checkpoint_bytes=10, shards_bytes=GIB, needed_bytes=2 * GIB, free_bytes=3 << 29)
    reason = judge(config, made_up(disk=disk)).reasons[0]
    # Lo que no es de los shards pide 1 GiB: para ellos queda la mitad de lo que piden.
    assert "libera 512,0\u00a0MiB, baja train.steps de 100000 a 50000," in reason


def test_si_se_sabe_que_ni_la_menor_cabe_no_se_aconseja_bajar_mas() -> None:
    config = make_config({"hardware.micro_batch": 4, "hardware.activation_checkpointing": "block"})
    reason = judge(config, made_up(memory=memory(40 * GIB))).reasons[0]
    assert "elige un modelo más pequeño" in reason
    assert "baja hardware.micro_batch" not in reason
