"""Cuánto cuesta el paso del optimizador, AdamW y Muon, al lado del resto del paso.

    python -m tests.benchmarks.optimizer_step [--rounds 7] [--work small|study]

El modelo es el trabajo `small` de `make bench` (`training_works.py`): vocabulario de 32 768, 6
capas, anchura 256 y lotes de 4 × 512; o el del estudio de pérdida (`loss_study.py`). En cada
vuelta, uno detrás del otro: pérdida y gradientes de un paso, y `step()` con cada optimizador sobre
esos gradientes. Da medianas en segundos de CPU de todos los hilos, que en una máquina ocupada se
mueven menos que los de reloj.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

from enlace.backends import open_device
from enlace.config.load import resolve
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.figures import number
from enlace.model.cost import flops_per_token, newton_schulz_flops
from enlace.train.state import Training
from enlace.train.trainer import accumulate, build_training
from tests.benchmarks.loss_study_plan import Job
from tests.benchmarks.loss_study_run import study_config

SMALL = (
    "model.vocab_size=32768",
    "model.n_layer=6",
    "model.n_head=8",
    "model.seq_len=512",
    "train.tokens_per_step=2048",
    "hardware.micro_batch=4",
)
KINDS = ("adamw", "muon")
PARTS = ("gradientes", *KINDS)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def build(work: str, kind: str) -> Training:
    config: Config = resolve("small", [*SMALL, f"train.optimizer={kind}"])
    if work == "study":
        config = study_config(Job(f"{kind}-wsd", config.train.lr, config.train.seed))
    return build_training(config, open_device(config.hardware))


def measure(trainings: dict[str, Training], rounds: int) -> dict[str, float]:
    """Mediana de segundos de CPU de cada parte, sin contar la primera vuelta."""
    first = trainings[KINDS[0]]
    model = first.config.model
    shape = (first.config.sequences_per_step, model.seq_len)
    ids = torch.randint(model.vocab_size, shape, generator=torch.Generator().manual_seed(0))
    batch = Batch(ids, ids.roll(-1, 1))
    seen: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(rounds + 1):
        first.optimizer.zero_grad()
        seen["gradientes"].append(cpu_seconds(lambda: accumulate(first, batch, ids.numel())))
        for kind, training in trainings.items():
            pairs = zip(training.model.parameters(), first.model.parameters(), strict=True)
            for parameter, other in pairs:
                parameter.grad = other.grad
            seen[kind].append(cpu_seconds(training.optimizer.step))
    return {part: statistics.median(values[1:]) for part, values in seen.items()}


def show(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", choices=("small", "study"), default="small")
    options = parser.parse_args()
    trainings = {kind: build(options.work, kind) for kind in KINDS}
    found = measure(trainings, options.rounds)
    for part, seconds in found.items():
        show(f"{part:12} {number(seconds, 3)} s de CPU")
    show(f"muon entre adamw: {number(found['muon'] / found['adamw'], 1)}")
    steps = {kind: found["gradientes"] + found[kind] for kind in KINDS}
    for kind in KINDS:
        show(f"{kind}: {number(100 * found[kind] / steps[kind], 1)} % del paso")
    show(f"paso con muon entre paso con adamw: {number(steps['muon'] / steps['adamw'], 3)}")
    config = trainings[KINDS[0]].config
    products = newton_schulz_flops(config.model, config.train.muon_steps)
    whole = flops_per_token(config.model) * config.train.tokens_per_step
    show(f"FLOP de Newton-Schulz: {number(100 * products / whole, 1)} % de los del paso")


if __name__ == "__main__":
    main()
