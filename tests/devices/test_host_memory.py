"""Guardar la memoria que se suelta: un tensor grande no vuelve al sistema, y sin glibc se dice."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from enlace.devices.host_memory import keep_freed_memory
from enlace.errors import HardwareError

MIB = 1 << 20
SIZE = 256 * MIB
PROGRAM = """
import sys
from pathlib import Path
import torch
from enlace.backends import open_device
from tests.support import make_config

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

open_device(make_config({{"hardware.host_allocator": sys.argv[1]}}).hardware)
before = resident()
block = torch.ones({size}, dtype=torch.uint8)
full = resident()
del block
print(full - before, resident() - before)
"""


@pytest.mark.parametrize(("allocator", "kept"), [("system", False), ("keep", True)])
def test_lo_soltado_vuelve_o_no_al_sistema_segun_el_perfil(allocator: str, kept: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(size=SIZE), allocator],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    full, after = map(int, done.stdout.split())
    assert full > SIZE - MIB
    assert (after > SIZE - MIB) == kept
    assert (after < SIZE / 8) == (not kept)


@pytest.mark.parametrize(
    "library", [SimpleNamespace(), SimpleNamespace(mallopt=lambda *_: 0)], ids=["sin", "se niega"]
)
def test_sin_mallopt_se_dice_y_se_da_el_remedio(
    monkeypatch: pytest.MonkeyPatch, library: SimpleNamespace
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    with pytest.raises(HardwareError, match=r"pon hardware\.host_allocator: system"):
        keep_freed_memory()
