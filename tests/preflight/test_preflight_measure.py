from pathlib import Path

import pytest
import torch

from enlace.backends import open_device
from enlace.config.schema import Config
from enlace.errors import CheckpointError, TrainingAbortedError
from enlace.model.cost import flops_per_token, parameter_count
from enlace.preflight.child import measured
from enlace.preflight.measure import disk_use, measure, measure_loading, shards_bytes
from enlace.preflight.measurement import Failure, Measurement, Outcome
from enlace.preflight.rehearsal import Instruments, Rehearsal, Steps, run_steps
from enlace.preflight.synthetic import SyntheticStream, synthetic_batch
from enlace.preflight.verdict import judge
from enlace.train.retention import is_save_time, kept_checkpoints, save_count
from enlace.train.trainer import build_training, train_step
from tests.data.builders import prepare, stories
from tests.support import make_config

BPE = {"model.vocab_size": 320, "data.tokenizer.kind": "bpe"}
FP16 = {
    "hardware.dtype": "fp16",
    "hardware.preflight.steps": 3,
    "hardware.preflight.health_steps": 6,
    "model.n_layer": 1,
    "train.tokens_per_step": 64,
    "train.eval_tokens": 64,
}
"""fp16 en CPU es lento: lo mínimo que aún acumula y salta pasos."""


@pytest.mark.parametrize("changes", [{}, FP16])
def test_los_pasos_medidos_son_los_de_train_step(changes: dict[str, object]) -> None:
    config = make_config(changes)
    backend, stream = open_device(config.hardware), SyntheticStream(config)
    measured = build_training(config, backend)
    steps = run_steps(measured, stream, 2, Instruments.open(backend))
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
    backend = open_device(config.hardware)
    return measure(config, backend, tmp_path_factory.mktemp("medida"), Instruments.open(backend))


def test_la_medida_dice_lo_que_se_sabe_por_otro_camino(measurement: Measurement) -> None:
    config = make_config()
    assert measurement.parameters == parameter_count(config.model)
    assert measurement.flops_per_token == flops_per_token(config.model)
    assert measurement.tokens_per_parameter == 20 * 256 / measurement.parameters
    assert (measurement.micro_batch, measurement.accumulation) == (2, 4)
    assert len(measurement.time.steps) == config.hardware.preflight.steps
    spent = measurement.time
    assert measurement.tokens_per_second == 256 / (spent.step_median + spent.loading)
    assert measurement.slow_tokens_per_second == 256 / (spent.step_p90 + spent.loading)
    # Pesos y dos momentos en fp32, más los nombres y el estado.
    assert measurement.disk.checkpoint_bytes > 12 * measurement.parameters
    assert measurement.first_loss is not None
    assert measurement.first_loss == pytest.approx(5.545, abs=0.2)


def test_el_total_suma_pasos_validaciones_y_guardados(measurement: Measurement) -> None:
    spent = measurement.time
    # 20 pasos; valida tras el 10 y el 20; guarda tras 5, 10, 15, 16 (antes de decaer) y 20.
    extra = 2 * spent.evaluation + 5 * spent.save
    assert spent.loading > 0
    extra += 20 * spent.loading
    assert spent.total_median == pytest.approx(20 * spent.step_median + extra, rel=1e-12)
    assert spent.total_p90 == pytest.approx(20 * spent.step_p90 + extra, rel=1e-12)


def test_en_cpu_lo_que_es_de_la_gpu_es_nulo(measurement: Measurement) -> None:
    assert measurement.memory.peak_allocated_bytes is None
    assert measurement.memory.allocation_retries is None
    assert measurement.memory.non_torch_bytes is None
    assert measurement.memory.fragmentation is None
    assert (measurement.energy, measurement.card, measurement.health) == (None, None, None)


PHASES = ["montaje", "primer paso", "pasos", "validación", "checkpoint", "reanudación"]


def test_cada_fase_tiene_su_pico_y_el_mayor_es_el_que_cuenta(measurement: Measurement) -> None:
    memory = measurement.memory
    assert [phase.name for phase in memory.phases] == PHASES
    peaks = [phase.peak_bytes for phase in memory.phases if phase.peak_bytes is not None]
    assert memory.peak_bytes == memory.needed_bytes == max(peaks)
    assert memory.steady_bytes == memory.phases[2].peak_bytes


def test_sin_acumulacion_se_ensayan_dos_micro_batches(tmp_path: Path) -> None:
    config = make_config({"train.tokens_per_step": 64})
    backend = open_device(config.hardware)
    assert config.accumulation == 1
    result = measure(config, backend, tmp_path, Instruments.open(backend))
    names = [phase.name for phase in result.memory.phases]
    assert names == [*PHASES[:3], "dos micro-batches", *PHASES[3:]]


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
    steps = range(config.train.steps)
    assert [step + 1 for step in steps if is_save_time(step, config.train)] == saved
    assert save_count(config.train) == len(saved)
    assert kept_checkpoints(config) == kept


def test_los_shards_que_aun_no_estan_cuentan_en_el_disco(
    measurement: Measurement, tmp_path: Path
) -> None:
    disk, tokens = measurement.disk, 20 * 256
    rest = 5 * disk.checkpoint_bytes + disk.checkpoint_bytes + 4 * measurement.parameters
    assert disk.shards_bytes == tokens
    assert disk.needed_bytes == rest + tokens
    assert shards_bytes(make_config(BPE)) == 2 * tokens
    rehearsal = Rehearsal(Steps(0.0, (), (), None), 1, 10)
    (tmp_path / "index.json").touch()
    assert disk_use(make_config(), rehearsal, tmp_path, tmp_path).shards_bytes == 0


@pytest.mark.slow
def test_en_fp16_la_medida_lleva_la_salud(tmp_path: Path) -> None:
    config = make_config(FP16)
    outcome = measured(config, tmp_path, None, probe=True)
    assert isinstance(outcome, Measurement)
    assert outcome.health is not None
    assert len(outcome.health.scaling.scales) == 6
    assert judge(config, outcome).passed
    assert Measurement.model_validate_json(outcome.model_dump_json()) == outcome


@pytest.mark.slow
def test_un_fp16_que_desborda_se_rechaza_antes_de_entrenar(tmp_path: Path) -> None:
    config = make_config({**FP16, "model.init_std": 100.0, "train.fp16_max_skips": 3})
    outcome: Outcome = measured(config, tmp_path, None, probe=True)
    assert isinstance(outcome, Failure)
    assert "fp16_max_skips=3" in outcome.detail
    (reason,) = judge(config, outcome).reasons
    assert "desborda en salida de atención de la capa 0" in reason


def test_sin_sondas_no_hay_salud_y_la_detiene_el_entrenador(tmp_path: Path) -> None:
    config = make_config({**FP16, "train.fp16_init_scale": 2.0**60, "train.fp16_max_skips": 2})
    outcome = measured(config, tmp_path, None, probe=False)
    assert isinstance(outcome, Failure)
    assert outcome.health is None
    assert "fp16_max_skips=2" in outcome.detail
    backend = open_device(config.hardware)
    with pytest.raises(TrainingAbortedError, match="fp16_max_skips=2"):
        measure(config, backend, tmp_path / "otra", Instruments.open(backend))


def test_la_lectura_se_mide_con_los_shards_si_sirven(tmp_path: Path) -> None:
    config = make_config()
    shards = prepare(tmp_path, stories(12), {"data.val_fraction": 0.4}).shards
    assert measure_loading(config, shards).source == "shards"
    assert measure_loading(config, None).source == "datos inventados"
    assert measure_loading(config, tmp_path / "no-existe").source == "datos inventados"
    # Un contexto que no cabe en esos datos: son de otro run.
    other = make_config({"model.seq_len": 1 << 15, "train.tokens_per_step": 1 << 16})
    assert measure_loading(other, shards).source == "datos inventados"


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
