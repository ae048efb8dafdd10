"""El banco de medida de verdad, con un modelo minúsculo: procesos, turnos y las mismas cuentas."""

from pathlib import Path

import pytest

from tests.benchmarks.training_pool import Worker
from tests.benchmarks.training_rounds import compare
from tests.benchmarks.training_worker import FLOOR, MACHINE, REFERENCE
from tests.benchmarks.training_works import WORKS, Setup

pytestmark = pytest.mark.slow


def test_enlace_la_referencia_y_transformers_hacen_el_mismo_trabajo(tmp_path: Path) -> None:
    work = WORKS["probe"]
    rivals = ["transformers", REFERENCE, FLOOR]

    def start(name: str) -> Worker:
        return Worker(name, Setup(work, "cpu", "cpu", 1, str(tmp_path)))

    result = compare(work, "enlace", rivals, 1, start, machine=MACHINE)
    assert result.failures == {}
    assert {len(result.pairs[name]) for name in rivals} == {1}
    same = rivals[:2]
    assert len({result.parameters[name] for name in ("enlace", *same)}) == 1
    ours = result.first_losses["enlace"]
    for name in same:
        # El segundo paso ya lleva la z-loss de ENLACE en los pesos: apenas se nota.
        assert result.first_losses[name][0] == pytest.approx(ours[0], rel=1e-5)
        assert result.first_losses[name] == pytest.approx(ours, rel=1e-4)
    (reply,) = result.machine
    assert reply["flops"] > 0
    assert all(rate > 0 for rate in reply["gemm"].values())
    turn = result.turns("enlace")[0]
    assert turn.peak is not None
    assert turn.base is not None
    assert turn.peak > turn.base


def test_los_dos_lectores_leen_los_mismos_shards(tmp_path: Path) -> None:
    from tests.benchmarks.training_parts import write_shards

    work = WORKS["stream"]
    write_shards(tmp_path, int(work.model_values()["vocab_size"]), tokens=1 << 16)

    def start(name: str) -> Worker:
        return Worker(name, Setup(work, "cpu", "cpu", 1, str(tmp_path)))

    result = compare(work, "stream-enlace", ["stream-nanogpt"], 1, start)
    assert result.failures == {}
    ours, theirs = result.pairs["stream-nanogpt"][0]
    assert set(ours.losses) == set(theirs.losses) == {work.tokens}
