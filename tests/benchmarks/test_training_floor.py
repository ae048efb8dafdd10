"""El suelo hace las mismas multiplicaciones que un paso, ni una más ni una menos."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.training_floor import step_tasks
from tests.benchmarks.training_reference import step_flops
from tests.benchmarks.training_works import WORKS, Setup


@pytest.mark.parametrize("name", ["probe", "smoke"])
def test_las_multiplicaciones_del_suelo_son_las_de_un_paso(name: str) -> None:
    setup = Setup(WORKS[name], "cpu", "cpu", 1, "")
    model = setup.config().model
    with FlopCounterMode(display=False) as counter:
        for task in step_tasks(setup):
            task()
    # El contador no conoce la atención de CPU: dos productos hacia delante y cuatro hacia atrás.
    scores = setup.work.tokens * model.seq_len * model.n_head * model.head_dim
    attention = 6 * 2 * scores * model.n_layer
    assert counter.get_total_flops() + attention == step_flops(model, setup.work.batch)
