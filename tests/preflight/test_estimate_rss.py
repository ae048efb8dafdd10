"""En CPU, el pico estimado frente al medido en un proceso aparte (tabla de docs/preflight.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

from enlace.config.load import resolve
from enlace.config.schema import Config
from enlace.preflight.estimate.memory import replay_on_heap
from enlace.preflight.estimate.trace import trace_training

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
_BPE = [
    "model.d_model=512", "model.n_head=8", "model.n_layer=8", "model.vocab_size=16384",
    "model.seq_len=256", "train.tokens_per_step=4096",
]  # fmt: skip
SHAPES = {
    "smoke": ("smoke", []),
    "demo": ("demo", []),
    "demo, micro-batch 16": ("demo", ["hardware.micro_batch=16", "train.tokens_per_step=4096"]),
    "demo, vocabulario 32768": ("demo", ["model.vocab_size=32768"]),
    "demo, seq_len 512": ("demo", ["model.seq_len=512", "train.tokens_per_step=8192"]),
    "BPE 16384, 8 capas": ("demo", _BPE),
    "BPE, checkpointing mlp": ("demo", [*_BPE, "hardware.activation_checkpointing=mlp"]),
    "BPE, checkpointing block": ("demo", [*_BPE, "hardware.activation_checkpointing=block"]),
    "BPE, 4 capas, micro-batch 4": ("demo", [*_BPE, "model.n_layer=4", "hardware.micro_batch=4"]),
}


def measured_bytes(config: Config) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.preflight.rss_child"],
        input=config.model_dump_json(),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.calibration
@pytest.mark.parametrize("name", SHAPES)
def test_el_pico_estimado_es_el_medido(name: str) -> None:
    run, settings = SHAPES[name]
    config = resolve(run, settings, ROOT)
    # La colocación del montón cambia de una vez a otra (hasta un 10 %): se mide dos veces.
    measured = sum(measured_bytes(config) for _ in range(2)) // 2
    peaks = replay_on_heap(trace_training(config).events)
    estimated = peaks.peak_reserved
    sys.stderr.write(
        f"\n{name}: medido {measured / MIB:.0f} MiB, estimado {estimated / MIB:.0f} "
        f"({estimated / measured - 1:+.1%}), vivo {peaks.peak_live / MIB:.0f}\n"
    )
    allowed = 0.15 * measured if measured >= 500 * MIB else max(64 * MIB, 0.15 * measured)
    assert abs(estimated - measured) <= allowed
