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


def _shape(
    width: int, heads: int, layers: int, vocabulary: int, length: int, rows: int, mode: str
) -> tuple[str, list[str]]:
    """Una forma a partir de la demo, con dos micro-batches por paso."""
    return "demo", [
        f"model.d_model={width}", f"model.n_head={heads}", f"model.n_layer={layers}",
        f"model.vocab_size={vocabulary}", f"model.seq_len={length}",
        f"train.tokens_per_step={2 * rows * length}", f"hardware.micro_batch={rows}",
        f"hardware.activation_checkpointing={mode}", "data.evaluation.max_new_tokens=1",
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
    # Formas con las que no se ha mirado nada antes de medirlas.
    "d 256, 6 capas, seq 256, mb 8, mlp": _shape(256, 4, 6, 512, 256, 8, "mlp"),
    "d 256, 8 capas, seq 256, mb 8, block": _shape(256, 4, 8, 512, 256, 8, "block"),
    "vocabulario 50000, d 128, 2 capas, mb 4": _shape(128, 4, 2, 50000, 128, 4, "none"),
    "d 768, 12 capas, seq 64, mb 2": _shape(768, 12, 12, 512, 64, 2, "none"),
    "vocabulario 1000, d 384, 5 capas, mb 16, mlp": _shape(384, 6, 5, 1000, 128, 16, "mlp"),
    "vocabulario 6000, d 320, 7 capas, seq 512, mb 3": _shape(320, 10, 7, 6000, 512, 3, "none"),
    "demo, Muon": ("demo", ["train.optimizer=muon"]),
    "BPE 16384, 8 capas, Muon": ("demo", [*_BPE, "train.optimizer=muon"]),
}
"""Con AdamW, salvo las que dicen otra cosa."""


def shape_config(name: str) -> Config:
    run, settings = SHAPES[name]
    optimizer = [] if "Muon" in name else ["train.optimizer=adamw"]
    return resolve(run, [*settings, *optimizer], ROOT)


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
    config = shape_config(name)
    # La colocación del montón cambia de una vez a otra (hasta un 10 %): se mide dos veces.
    measured = sum(measured_bytes(config) for _ in range(2)) // 2
    keeps = config.hardware.host_allocator == "keep"
    peaks = replay_on_heap(trace_training(config).events, keeps=keeps)
    estimated = peaks.peak_reserved
    sys.stderr.write(
        f"\n{name}: medido {measured / MIB:.0f} MiB, estimado {estimated / MIB:.0f} "
        f"({estimated / measured - 1:+.1%}), vivo {peaks.peak_live / MIB:.0f}\n"
    )
    allowed = 0.15 * measured if measured >= 500 * MIB else max(64 * MIB, 0.15 * measured)
    assert abs(estimated - measured) <= allowed
