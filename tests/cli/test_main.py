"""Un Ctrl-C mientras la orden se carga es una línea, no una traza."""

import subprocess
import sys

import pytest

from enlace import __main__ as door

_CUT = """
import sys
from enlace import __main__ as door

class Cut:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv.pop():
            raise KeyboardInterrupt
sys.meta_path.insert(0, Cut())
door.main()
"""


@pytest.mark.parametrize("module", ["enlace.cli", "typer", "enlace.workspace.usage"])
def test_cortada_mientras_carga_sale_con_una_linea(module: str) -> None:
    script = _CUT.replace("sys.argv.pop()", repr(module))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "enlace: interrumpido\n"


def test_es_la_misma_orden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["enlace", "nada-de-esto"])
    with pytest.raises(SystemExit) as caught:
        door.main()
    assert caught.value.code == 2
    assert "nada-de-esto" in capsys.readouterr().err
