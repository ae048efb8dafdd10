"""A qué velocidad comprueba `enlace verify` un run, frente a leerlo y resumirlo seguido.

    .venv/bin/python -m tests.benchmarks.verify_speed CARPETA [RONDAS]

Hace en CARPETA un run con dos checkpoints de tiny-50m con los momentos de AdamW (1,2 GB) y alterna,
en cada ronda, las dos cosas; antes de cada una pide al sistema que suelte lo que guarda en memoria
de esos ficheros, para que se lean del disco. No se leen datos ni caché de DVC: no los hay.
"""

import hashlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from enlace.config.load import resolve
from enlace.config.schema import Config
from enlace.lineage.verify import verify
from enlace.provenance import versions
from enlace.train.checkpoint import MODEL, OPTIMIZER, write_checkpoint
from enlace.train.disk import forget_cached
from enlace.train.snapshot import Camera
from tests.benchmarks.checkpoint_stall import ROOT, build_state, show
from tests.train.checkpoints import small_state
from tests.train.runs import ORIGIN

CHECKPOINTS = 2
ROUNDS = 5
BLOCK = 1 << 20


def build_run(folder: Path, config: Config) -> list[Path]:
    """Escribe los checkpoints y devuelve sus ficheros grandes."""
    state = build_state(config)
    segment: dict[str, Any] = {
        "from_step": 0,
        "started": "2026-01-01T00:00:00+00:00",
        "differences": {},
        "code": ORIGIN["code"],
        "code_normalized": ORIGIN["code_normalized"],
        "git": ORIGIN["git"],
        "versions": versions(),
        "device": "cpu",
        "threads": 1,
        "resumed_from": None,
        "rewinds": [],
    }
    record = {
        "identity": config.identity(),
        "fingerprint": config.fingerprint(),
        "origin": ORIGIN,
        "segments": [segment],
        "config": config.model_dump(mode="json"),
    }
    camera = Camera(torch.device("cpu"))
    files = {MODEL: state.model, OPTIMIZER: state.optimizer}
    made = [
        write_checkpoint(folder, camera.take(small_state(step, **record), files))
        for step in range(1, CHECKPOINTS + 1)
    ]
    return [path / name for path in made for name in files]


def read_in_order(files: Iterable[Path]) -> None:
    """Lo más simple: un fichero tras otro, leer un bloque y resumirlo."""
    for path in files:
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(BLOCK):
                digest.update(block)


def check(folder: Path) -> None:
    """Lo que hace la orden; todo lo que se puede comprobar debe estar bien."""
    found = {item.status for item in verify(folder, folder, data=False)}
    assert found <= {"bien", "sin comprobar"}, found


def seconds(work: Callable[[], None], files: list[Path]) -> float:
    """Lo que tarda, con los ficheros fuera de la memoria del sistema."""
    forget_cached(files)
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak() -> int:
    """El máximo de memoria residente de este proceso, en bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def measure(folder: Path, rounds: int) -> None:
    """Mide un run ya hecho."""
    files = list(folder.rglob("*.safetensors"))
    before = peak()
    pairs = [
        (seconds(lambda: read_in_order(files), files), seconds(lambda: check(folder), files))
        for _ in range(1 + rounds)
    ][1:]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    for name, column in (("seguido", 0), ("enlace verify", 1)):
        middle = statistics.median(pair[column] for pair in pairs)
        show(f"{name}: {middle:.2f} s, {megabytes / middle:.0f} MB/s")
    ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
    show(f"{megabytes:.0f} MB, {rounds} rondas; verify va a {ratio:.2f} veces el seguido")
    show(f"memoria de más: {(peak() - before) / 1e6:.1f} MB")


def main() -> None:
    """Hace el run en otro proceso, que su memoria no cuente, y lo mide."""
    place = Path(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    if place.name.startswith("run-"):
        config = resolve("pretrain-2060", ["hardware=cpu", "hardware.device=cpu"], ROOT)
        build_run(place, config)
        return
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name) / "run-verify"
        subprocess.run([sys.executable, "-m", "tests.benchmarks.verify_speed", folder], check=True)
        measure(folder, rounds)


if __name__ == "__main__":
    main()
