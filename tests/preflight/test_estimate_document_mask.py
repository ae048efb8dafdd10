"""Lo que cuesta la máscara de documentos, estimado: una por micro-batch y el doble de FLOP."""

import pytest

from enlace.config.schema import Config
from enlace.model.cost import activation_bytes
from enlace.preflight.estimate.recorder import BACKWARD, FORWARD, Trace
from enlace.preflight.estimate.roofline import Rates, step_time
from enlace.preflight.estimate.trace import trace_training
from tests.preflight.test_estimate_trace import GPU, flops, forward_bytes
from tests.support import make_config

pytestmark = pytest.mark.slow


def _pair(changes: dict[str, object]) -> list[tuple[Config, Trace]]:
    configs = [make_config({**changes, "data.document_mask": mask}) for mask in ("none", "block")]
    return [(config, trace_training(config)) for config in configs]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_una_mascara_para_todas_las_capas_la_atencion_entera_y_un_paso_mas_lento(
    device: str,
) -> None:
    changes = {**(GPU if device == "cuda" else {}), "model.n_layer": 2}
    (plain, causal), (masked, whole) = _pair(changes)
    rows, length = plain.hardware.micro_batch, plain.model.seq_len
    size = 2 if device == "cuda" else 4
    extra = forward_bytes(whole) - forward_bytes(causal)
    assert extra == size * rows * length**2
    dtype, expand_kv = plain.hardware.dtype, device == "cuda"
    known = [
        activation_bytes(
            config.model,
            rows,
            dtype,
            expand_kv=expand_kv,
            document_mask=config.data.document_mask,
        )
        for config in (plain, masked)
    ]
    assert extra == known[1] - known[0]
    assert flops(whole, "attention") == 2 * flops(causal, "attention") > 0
    assert flops(whole, "gemm") == flops(causal, "gemm")
    if device == "cuda":
        fast, slow = (step_time(trace, Rates(1e9, 1e9, 1e9), 2) for trace in (causal, whole))
        assert slow.micro_batch > fast.micro_batch
        assert slow.optimizer == fast.optimizer
    for phase in (FORWARD, BACKWARD):
        assert whole.work[1, phase] != causal.work[1, phase]
