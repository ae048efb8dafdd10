"""Lo que cuesta guardar: detención del bucle, velocidad de escritura, pasos perdidos y memoria.

    make bench-checkpoint [DIR=carpeta] [ROUNDS=5]

Guarda el mismo estado (tiny-50m con momentos de AdamW) de cinco maneras, alternándolas en cada
ronda: bytes en crudo, `torch.save`, `torch.distributed.checkpoint.save`, `async_save` y ENLACE.
Después, con un entrenamiento corriendo al lado, mide cuánto tarda de más mientras se escribe.
Las cifras solo valen en una máquina sin otro trabajo.
"""

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from enlace.backends import open_device
from enlace.config.load import resolve
from enlace.config.schema import Config
from enlace.preflight.synthetic import SyntheticStream
from enlace.train import checkpoint, writer
from enlace.train.state import Training
from enlace.train.tensors import expected_moments, model_tensors, rng_tensors
from enlace.train.trainer import build_training, train_step
from tests.train.checkpoints import small_state

ROUNDS = 5
BESIDE_ROUNDS = 3
BLOCK = 1 << 23
STEPS = 12
WARMUP = 3
ROOT = Path(__file__).parents[2]


class Timing(NamedTuple):
    """Segundos: detención del bucle, hasta tenerlo en el disco, y hasta haberlo comprobado."""

    stall: float
    written: float
    total: float


class Running(NamedTuple):
    """Un guardado en marcha."""

    finish: Callable[[], float]
    """Espera y devuelve el instante en que los datos quedaron en el disco."""


class State(NamedTuple):
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    @property
    def flat(self) -> dict[str, Tensor]:
        return self.model | self.optimizer

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.flat.values())


def build_state(config: Config) -> State:
    """Los tensores de un checkpoint de verdad, sin entrenar: los momentos, al azar."""
    training = build_training(config, open_device(config.hardware))
    expected = expected_moments(training.model, training.optimizer)
    moments = {name: torch.rand(meta.shape) for name, meta in expected.items()}
    return State(model_tensors(training.model), moments | rng_tensors(torch.device("cpu")))


def save_raw(state: State, folder: Path) -> Running:
    descriptor = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT)
    for tensor in state.flat.values():
        view = tensor.numpy().reshape(-1).view("u1").data
        for start in range(0, len(view), BLOCK):
            os.write(descriptor, view[start : start + BLOCK])
    os.fsync(descriptor)
    os.close(descriptor)
    return Running(time.perf_counter)


def save_torch(state: State, folder: Path) -> Running:
    path = folder / "state.pt"
    torch.save(state.flat, path)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return Running(time.perf_counter)


def save_dcp(state: State, folder: Path) -> Running:
    dcp_save(state.flat, checkpoint_id=folder / "dcp")
    return Running(time.perf_counter)


def save_async(state: State, folder: Path) -> Running:
    future: Any = async_save(state.flat, checkpoint_id=folder / "dcp")

    def finish() -> float:
        future.result()
        return time.perf_counter()

    return Running(finish)


class Enlace:
    """El escritor del entrenador, con el instante en que lo escrito queda en el disco."""

    def __init__(self, config: Config, state: State, folder: Path) -> None:
        self.written = 0.0
        self._step = 0
        self._writer = writer.CheckpointWriter(
            folder / "enlace", config, torch.device("cpu"), say=show, sync=lambda: None
        )
        before = resident()
        self._writer.reserve(state.model, state.optimizer)
        self.memory = resident() - before
        verify = checkpoint.verify_checkpoint

        def timed_verify(path: Path) -> dict[str, Any]:
            self.written = time.perf_counter()
            return verify(path)

        checkpoint.verify_checkpoint = timed_verify

    def save(self, state: State, _: Path) -> Running:
        self._step += 1
        self._writer.save(small_state(self._step), state.model, state.optimizer)

        def finish() -> float:
            self._writer.wait()
            return self.written

        return Running(finish)


Saver = Callable[[State, Path], Running]


def once(saver: Saver, state: State, folder: Path) -> Timing:
    """Un guardado aislado, con el disco en reposo antes de empezar."""
    place = Path(tempfile.mkdtemp(dir=folder))
    os.sync()
    started = time.perf_counter()
    running = saver(state, place)
    stall = time.perf_counter() - started
    written = running.finish() - started
    total = time.perf_counter() - started
    shutil.rmtree(place)
    return Timing(stall, written, total)


def resident() -> int:
    """Bytes de memoria residente de este proceso."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


class Beside(NamedTuple):
    """Un guardado con un entrenamiento al lado: segundos perdidos y memoria de más."""

    lost: float
    memory: int


def beside(saver: Saver, state: State, folder: Path, training: Training) -> Beside:
    """Cuánto más tardan los pasos dados mientras se escribe, sin contar la detención."""
    stream = SyntheticStream(training.config)
    batch = stream.batch(0)

    def timed_step() -> float:
        started = time.perf_counter()
        train_step(training, batch, 0)
        return time.perf_counter() - started

    for _ in range(WARMUP):
        timed_step()
    quiet = statistics.median(timed_step() for _ in range(STEPS))
    before, peak = resident(), 0
    place = Path(tempfile.mkdtemp(dir=folder))
    os.sync()
    busy = 0.0
    done = _watch(saver(state, place))
    steps = 0
    while not done():
        busy += timed_step()
        steps += 1
        peak = max(peak, resident())
    shutil.rmtree(place)
    return Beside(busy - steps * quiet, max(0, peak - before))


def _watch(running: Running) -> Callable[[], bool]:
    """Una función que dice si el guardado ha acabado, sin esperarlo."""
    thread = threading.Thread(target=running.finish)
    thread.start()
    return lambda: not thread.is_alive()


def show(text: str) -> None:
    sys.stdout.write(text + "\n")


def main() -> None:
    """Mide y escribe una tabla."""
    warnings.simplefilter("ignore")
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    root.mkdir(parents=True, exist_ok=True)
    demo = resolve("demo", [], ROOT)
    config = resolve("pretrain-2060", ["hardware=cpu", "hardware.device=cpu"], ROOT)
    state = build_state(config)
    with tempfile.TemporaryDirectory(dir=root) as name:
        folder = Path(name)
        own = Enlace(config, state, folder)
        savers: dict[str, Saver] = {
            "en crudo": save_raw,
            "torch.save": save_torch,
            "dcp.save": save_dcp,
            "dcp.async_save": save_async,
            "ENLACE": own.save,
        }
        timings = measure(savers, state, folder, rounds)
        report(state, own, timings, measure_beside(savers, state, folder, demo))


def measure(
    savers: dict[str, Saver], state: State, folder: Path, rounds: int
) -> dict[str, list[Timing]]:
    """Las rondas, cada una con todos; la primera no cuenta."""
    timings: dict[str, list[Timing]] = {name: [] for name in savers}
    for turn in range(1 + rounds):
        for name, saver in savers.items():
            timing = once(saver, state, folder)
            if turn:
                timings[name].append(timing)
    return timings


def measure_beside(
    savers: dict[str, Saver], state: State, folder: Path, demo: Config
) -> dict[str, list[Beside]]:
    """Lo mismo con un entrenamiento al lado, para los que escriben detrás."""
    training = build_training(demo, open_device(demo.hardware))
    names = ("dcp.async_save", "ENLACE")
    return {
        name: [beside(savers[name], state, folder, training) for _ in range(BESIDE_ROUNDS)]
        for name in names
    }


def report(
    state: State, own: Enlace, timings: dict[str, list[Timing]], beside: dict[str, list[Beside]]
) -> None:
    """La tabla, en Markdown, con medianas."""

    def median(name: str, column: str) -> float:
        return float(statistics.median(getattr(timing, column) for timing in timings[name]))

    megabytes, raw = state.nbytes / 1e6, median("en crudo", "written")
    show(
        f"{megabytes:.0f} MB; {len(timings['ENLACE'])} rondas; {os.cpu_count()} núcleos; "
        f"torch {torch.__version__}"
    )
    show("\n| | detiene (s) | en el disco (s) | comprobado (s) | MB/s | de la escritura en crudo |")
    show("|---|---|---|---|---|---|")
    for name in timings:
        stall, written, total = (median(name, column) for column in Timing._fields)
        show(
            f"| {name} | {stall:.3f} | {written:.2f} | {total:.2f} | {megabytes / written:.0f} "
            f"| {raw / written:.0%} |"
        )
    ratio = median("ENLACE", "stall") / median("dcp.async_save", "stall")
    show(f"\ndetención: {ratio:.2f} de la de async_save; búferes: {own.memory / 1e6:.0f} MB")
    for name, results in beside.items():
        lost = statistics.median(result.lost for result in results)
        memory = max(result.memory for result in results)
        show(f"{name}: {lost:.2f} s de entrenamiento por guardado; {memory / 1e6:.0f} MB más")


if __name__ == "__main__":
    main()
