"""Órdenes lanzadas de verdad: en marcha, y lo que escribieron al acabar."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

PATIENCE_SECONDS = 240
_STAGE = re.compile(r"^Running stage '(\w+)'", re.MULTILINE)


class Done(NamedTuple):
    """Una orden que acabó: su código y todo lo que escribió."""

    code: int
    text: str

    @property
    def stages(self) -> list[str]:
        """Las etapas que DVC ejecutó, en orden."""
        return _STAGE.findall(self.text)


class Started:
    """Una orden en marcha, en su propia sesión."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self.output = output

    @property
    def pid(self) -> int:
        """El proceso, que es además el líder de su grupo."""
        return self.process.pid

    def signal_group(self, number: signal.Signals) -> None:
        """Una señal para todo el grupo, como la que manda la terminal con Ctrl-C."""
        os.killpg(self.pid, number)

    def finish(self) -> Done:
        """Espera a que acabe."""
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        return Done(code, self.output.read_text(encoding="utf-8"))
