from pathlib import Path

import pytest
import torch

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.errors import CheckpointError, TrainingAbortedError
from enlace.model.cost import flops_per_token, parameter_count
from enlace.preflight.measure import (
    kept_checkpoints,
    loss_scaling,
    measure,
    run_steps,
    saved_steps,
)
from enlace.preflight.measurement import Failure, LossScaling, Measurement
from enlace.preflight.synthetic import SyntheticStream, synthetic_batch
from enlace.train.trainer import StepResult, build_training, train_step
from tests.support import make_config

FP16 = {
    "hardware.dtype": "fp16",
    "hardware.preflight.steps": 3,
    "model.n_layer": 1,
    "train.tokens_per_step": 64,
    "train.eval_tokens": 64,
}
"""fp16 en CPU es lento: lo mínimo que aún acumula y salta pasos."""


def test_los_pasos_medidos_son_los_de_train_step() -> None:
    config = make_config()
    backend, stream = open_device(config.hardware), SyntheticStream(config)
    measured = build_training(config, backend)
    steps = run_steps(measured, stream, 2)
    by_hand = build_training(config, backend)
    results = tuple(train_step(by_hand, stream.batch(step), step) for step in range(3))
    assert steps.results == results
    assert len(steps.seconds) == 2
    weights = by_hand.model.state_dict()
    for name, tensor in measured.model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    fresh = build_training(config, backend).model.state_dict()
    assert not torch.equal(fresh["tok_emb.weight"], weights["tok_emb.weight"])


@pytest.fixture(scope="module")
def measurement(tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    config = make_config()
    return measure(config, open_device(config.hardware), tmp_path_factory.mktemp("medida"))


def test_la_medida_dice_lo_que_se_sabe_por_otro_camino(measurement: Measurement) -> None:
    config = make_config()
    assert measurement.parameters == parameter_count(config.model)
    assert measurement.flops_per_token == flops_per_token(config.model)
    assert measurement.tokens_per_parameter == 20 * 256 / measurement.parameters
    assert (measurement.micro_batch, measurement.accumulation) == (2, 4)
    assert len(measurement.time.steps) == config.hardware.preflight.steps
    assert measurement.tokens_per_second == 256 / measurement.time.step_median
    # Pesos y dos momentos en fp32, más los nombres y el estado.
    assert measurement.disk.checkpoint_bytes > 12 * measurement.parameters
    assert measurement.first_loss is not None
    assert measurement.first_loss == pytest.approx(5.545, abs=0.2)


def test_el_total_suma_pasos_validaciones_y_guardados(measurement: Measurement) -> None:
    spent = measurement.time
    # 20 pasos; valida tras el 10 y el 20; guarda tras 5, 10, 15, 16 (antes de decaer) y 20.
    extra = 2 * spent.evaluation + 5 * spent.save
    assert spent.total_median == pytest.approx(20 * spent.step_median + extra, rel=1e-12)
    assert spent.total_p90 == pytest.approx(20 * spent.step_p90 + extra, rel=1e-12)


def test_en_cpu_lo_que_es_de_la_gpu_es_nulo(measurement: Measurement) -> None:
    assert measurement.memory.peak_allocated_bytes is None
    assert measurement.memory.allocation_retries is None
    assert measurement.loss_scaling is None


def test_la_medida_va_y_vuelve_por_json(measurement: Measurement) -> None:
    assert Measurement.model_validate_json(measurement.model_dump_json()) == measurement


@pytest.mark.parametrize(
    ("changes", "saved", "kept"),
    [
        ({}, [5, 10, 15, 16, 20], 5),
        ({"train.schedule": "cosine"}, [5, 10, 15, 20], 4),
        ({"train.keep_every": 5}, [5, 10, 15, 16, 20], 6),
        ({"train.save_every": 100, "train.decay": 0}, [20], 2),
    ],
)
def test_los_checkpoints_que_conviven(
    changes: dict[str, object], saved: list[int], kept: int
) -> None:
    config = make_config(changes)
    assert saved_steps(config) == saved
    assert kept_checkpoints(config) == kept


def test_fp16_separa_los_saltos_de_calibracion_de_los_demas() -> None:
    def results(skips: str) -> list[StepResult]:
        return [StepResult(1.0, 1.0, 0.1, mark == "x", 256, 8.0) for mark in skips]

    expected = LossScaling(calibration_skips=2, steps=5, skips=1, final_scale=8.0)
    assert loss_scaling(results("xx..x..")) == expected
    none = LossScaling(calibration_skips=3, steps=0, skips=0, final_scale=8.0)
    assert loss_scaling(results("xxx")) == none
    assert loss_scaling(results("..")).calibration_skips == 0


def test_fp16_calibra_la_escala_en_los_pasos_medidos(tmp_path: Path) -> None:
    config = make_config({**FP16, "train.fp16_init_scale": 2.0**24, "train.fp16_max_skips": 9})
    use = measure(config, open_device(config.hardware), tmp_path).loss_scaling
    assert use is not None
    assert use.calibration_skips > 0
    assert use.calibration_skips + use.steps == 4
    assert use.final_scale == 2.0 ** (24 - use.calibration_skips - use.skips)


def test_fp16_sin_escala_posible_lo_dice_el_entrenador(tmp_path: Path) -> None:
    config = make_config({**FP16, "train.fp16_init_scale": 2.0**60, "train.fp16_max_skips": 2})
    with pytest.raises(TrainingAbortedError, match="fp16_max_skips=2"):
        measure(config, open_device(config.hardware), tmp_path)


def test_los_lotes_inventados_dependen_solo_de_la_semilla_y_el_paso() -> None:
    config = make_config()
    first = synthetic_batch(config, 3, 5)
    again = synthetic_batch(config, 3, 5)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.ids, synthetic_batch(config, 3, 6).ids)
    assert torch.equal(first.ids[:, 1:], first.targets[:, :-1])


def frequencies(config: Config) -> torch.Tensor:
    batch = synthetic_batch(config, 2000, 0)
    return batch.targets.flatten().bincount(minlength=config.model.vocab_size).double()


def test_los_ids_siguen_la_ley_de_zipf_mandelbrot_y_hay_separadores() -> None:
    counts = frequencies(make_config())
    total = counts.sum()
    assert counts[0] / total == pytest.approx(1 / 512, rel=0.2)
    expected = 1 / (torch.arange(1, 256).double() + 2.7)
    expected /= expected.sum()
    seen = counts[1:] / counts[1:].sum()
    assert (seen - expected).abs().max() < 3e-3
    assert counts[255] > 0


def test_el_flujo_inventado_rechaza_el_estado_de_otro() -> None:
    stream = SyntheticStream(make_config())
    stream.check_state(stream.state_dict(3))
    with pytest.raises(CheckpointError, match="flujo"):
        stream.check_state(SyntheticStream(make_config({"train.seed": 8})).state_dict(3))


def test_un_fallo_no_se_confunde_con_una_medida(measurement: Measurement) -> None:
    failure = Failure(kind="memory", detail="x")
    with pytest.raises(ValueError, match="kind"):
        Failure.model_validate_json(measurement.model_dump_json())
    with pytest.raises(ValueError, match="device"):
        Measurement.model_validate_json(failure.model_dump_json())
