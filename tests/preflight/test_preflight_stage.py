"""Lo que las etapas hacen alrededor de medir: sitio libre de otros y avisos del dispositivo."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from enlace.backends import decide, describe_device
from enlace.errors import LockError
from enlace.process import exclusive_lock
from stages import device
from stages.preflight import quiet_device
from tests.support import make_config

RUN = "demo-0123456789abcdef"


def test_en_cpu_no_se_mide_mientras_alguien_entrena(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with (
        exclusive_lock(tmp_path / "runs" / RUN / "lock"),
        pytest.raises(LockError, match="make stop") as refused,
        quiet_device("cpu"),
    ):
        pytest.fail("midió")
    assert RUN in str(refused.value)
    assert f"proceso {os.getpid()}" in str(refused.value)
    with quiet_device("cpu"):
        pass


def test_en_cpu_no_se_mide_dos_veces_a_la_vez(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with (
        quiet_device("cpu"),
        pytest.raises(LockError, match=f"proceso {os.getpid()}"),
        quiet_device("cpu"),
    ):
        pytest.fail("midió")
    record = json.loads((tmp_path / ".enlace/preflight/lock").read_text("utf-8"))
    assert record["pid"] == os.getpid()


def test_la_etapa_dice_los_avisos_del_dispositivo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = make_config().hardware
    warned = replace(
        decide(hardware, describe_device("cpu"), threads=1), warnings=("va lenta", "va llena")
    )
    monkeypatch.setattr(device, "open_device", lambda *_: warned)
    assert device.open_announced(hardware) is warned
    assert capsys.readouterr().out == "aviso: va lenta\naviso: va llena\n"
