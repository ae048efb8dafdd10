import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enlace.process import delegate


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_si_el_hijo_acaba_bien_se_sigue(capfd: pytest.CaptureFixture[str]) -> None:
    delegate(python("print('hecho')"))
    assert capfd.readouterr().out == "hecho\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(2)", 2),
        ("import sys; sys.exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_el_codigo_y_la_senal_del_hijo_son_los_del_padre(code: str, expected: int) -> None:
    with pytest.raises(SystemExit) as caught:
        delegate(python(code))
    assert caught.value.code == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_una_senal_al_padre_acaba_con_los_dos(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "pid"
    child = (
        "import os, pathlib, time;"
        f"path = pathlib.Path({str(mark)!r});"
        "path.with_suffix('.tmp').write_text(str(os.getpid()));"
        "path.with_suffix('.tmp').rename(path); time.sleep(60)"
    )
    parent = subprocess.Popen(
        python(
            "import sys; from enlace.process import delegate;"
            f"delegate([sys.executable, '-c', {child!r}])"
        )
    )
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(parent.pid, number)
    assert parent.wait(60) == 128 + number
    assert not Path("/proc", mark.read_text()).exists()


def test_las_senales_vuelven_a_quien_las_tenia() -> None:
    before = signal.getsignal(signal.SIGTERM)
    delegate(python(""))
    assert signal.getsignal(signal.SIGTERM) is before
