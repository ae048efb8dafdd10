"""Los límites de un arranque y los fallos de la tarjeta: se guarda lo que se puede y se dice."""

from pathlib import Path
from unittest import mock

import pytest
import torch

from enlace.errors import GO_ON, DeviceFailedError, EnlaceError, UnfinishedError
from enlace.process import StopSignal
from enlace.progress import TABLE, TrainLog
from enlace.train.devices import device_faults
from enlace.train.limits import Limits
from tests.support import make_config
from tests.train.checkpoints import save_small, steps_in
from tests.train.runs import SHORT, deterministic_rows, final_tensors, run_training
from tests.train.streams import PeriodicStream


def test_las_horas_cuentan_desde_este_arranque() -> None:
    clock = iter([1000.0, 1000.0 + 1799.9, 1000.0 + 1800.0])
    train = make_config({"train.max_hours": 0.5}).train
    limits = Limits(train, Path(), StopSignal(), lambda: next(clock))
    assert limits.reached() is None
    reason = limits.reached()
    assert reason is not None
    assert reason.exit_code == GO_ON
    assert "train.max_hours = 0.5" in reason.text


@pytest.mark.parametrize(
    "key", ["max_hours", pytest.param("min_free_megabytes", marks=pytest.mark.slow)]
)
def test_un_limite_guarda_para_y_deja_seguir(key: str, tmp_path: Path) -> None:
    # Un límite que siempre se alcanza: cada arranque da un paso.
    changes = SHORT | {f"train.{key}": 1e-12 if key == "max_hours" else 1e15}
    for step in (1, 2):
        with pytest.raises(UnfinishedError, match=f"paso {step} de 6.*la misma orden") as caught:
            run_training(tmp_path / "a", make_config(changes))
        assert caught.value.exit_code == GO_ON
    run_training(tmp_path / "a", make_config(SHORT))
    run_training(tmp_path / "b", make_config(SHORT))
    assert deterministic_rows(tmp_path / "a") == deterministic_rows(tmp_path / "b")
    for name, tensor in final_tensors(tmp_path / "b").items():
        assert torch.equal(tensor, final_tensors(tmp_path / "a")[name]), name


class BrokenStream(PeriodicStream):
    """Lanza `error` en el paso 4, como haría una tarjeta."""

    error: Exception

    def batch(self, step: int):  # type: ignore[no-untyped-def]
        if step == 4:
            raise self.error
        return super().batch(step)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.AcceleratorError("CUDA error: unspecified launch failure\nmás"), "nvidia-smi"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "micro_batch"),
        (MemoryError(), "no queda memoria"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate"), "no queda memoria"),
    ],
)
def test_la_tarjeta_que_falla_es_una_frase_y_lo_guardado_sigue(
    error: Exception, words: str, tmp_path: Path
) -> None:
    config = make_config(SHORT)
    stream = BrokenStream(config)
    stream.error = error
    with pytest.raises(DeviceFailedError, match=words) as caught:
        run_training(tmp_path, config, stream=stream)
    assert "step_00000003 sigue intacto" in str(caught.value)
    assert str(caught.value).endswith("sigue donde iba")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4
    assert steps_in(tmp_path) == [2, 3]
    assert run_training(tmp_path, config).step == 6


@pytest.mark.parametrize("error", [torch.AcceleratorError("CUDA error"), MemoryError()])
def test_sin_nada_guardado_no_se_promete_seguir_donde_iba(error: Exception, tmp_path: Path) -> None:
    expected = pytest.raises(DeviceFailedError, match="aún no hay ningún checkpoint")
    with expected as caught, device_faults(tmp_path):
        raise error
    assert str(caught.value).endswith("empieza de nuevo")


def test_otro_fallo_no_se_disfraza(tmp_path: Path) -> None:
    save_small(tmp_path, 3)
    with pytest.raises(RuntimeError, match="un fallo del programa"), device_faults(tmp_path):
        raise RuntimeError("un fallo del programa")


def test_sin_registro_no_se_entrena(tmp_path: Path) -> None:
    calls = 0
    inner = TrainLog.record

    def record(log: TrainLog, *rest: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            (tmp_path / TABLE).unlink()
            (tmp_path / TABLE).symlink_to("/dev/full")
        inner(log, *rest)  # type: ignore[arg-type]

    with mock.patch.object(TrainLog, "record", record), pytest.raises(EnlaceError) as caught:
        run_training(tmp_path, make_config(SHORT))
    assert "train.tsv (no queda sitio" in str(caught.value)
    assert steps_in(tmp_path) == [2, 3]
    (tmp_path / TABLE).unlink()
    assert run_training(tmp_path, make_config(SHORT)).step == 6
