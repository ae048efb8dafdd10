"""`enlace chat` en una terminal de verdad: se escribe, se corta y se sale como lo haría alguien."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.export.support_export import ROOT, trained_folder

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un modelo BPE entregado de verdad."""
    return trained_folder(tmp_path_factory.mktemp("chat"))


@pytest.fixture
def terminal(model: Path) -> Iterator[pexpect.spawn]:
    """La orden en su terminal; lo que quede de ella muere al acabar la prueba."""
    arguments = ["-m", "enlace.cli", "chat", str(model), "--max-new-tokens", "5"]
    child = pexpect.spawn(
        sys.executable, arguments, cwd=ROOT, timeout=PATIENCE_SECONDS, encoding="utf-8"
    )
    yield child
    child.close(force=True)


@pytest.mark.slow
def test_en_una_terminal_de_verdad(terminal: pexpect.spawn) -> None:
    _wait_for_prompt(terminal)
    assert "todavía no conversa" in terminal.before
    terminal.kill(signal.SIGINT)
    _wait_for_prompt(terminal)
    assert "/salir" in terminal.before
    terminal.sendline("Había una vez")
    _wait_for_prompt(terminal)
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 0


def _wait_for_prompt(terminal: pexpect.spawn) -> None:
    """Espera a que pida texto y se quede leyendo.

    Una señal entre escribir el aviso y ponerse a leer no la ve `input` hasta la tecla siguiente
    (CPython la atiende al volver de la lectura): quien se adelanta ahí espera para siempre.
    """
    terminal.expect_exact("texto> ")
    limit = time.monotonic() + PATIENCE_SECONDS
    stat = Path(f"/proc/{terminal.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < limit, "no se pone a leer"
        time.sleep(0.01)
