from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enlace.cards import profile_card
from enlace.config.load import resolve
from enlace.config.schema import Config
from enlace.errors import ConfigError, HardwareError, PreflightError, UnfinishedError
from enlace.figures import size
from enlace.preflight.estimate.capacity import GIB
from enlace.preflight.estimate.error import compare, estimate_error
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.record import Choice, Estimate
from enlace.preflight.estimate.show import show_estimate
from enlace.preflight.picture import estimate_svg
from enlace.workspace.estimate import estimate_path, estimate_run
from tests.preflight.support_preflight import made_up, memory
from tests.support import make_config

ROOT = Path(__file__).parents[2]
TURING = profile_card("rtx2060")
DISK = 1 << 40
GPU = {
    "hardware.name": "rtx2060",
    "hardware.device": "cuda",
    "hardware.dtype": "fp16",
    "hardware.sdpa_backend": "mem_efficient",
}

FEW = {"train.tokens_per_step": 64}
"""Dos secuencias por paso: sin micro-batches entre los que buscar, que es lo que tarda."""
BEST = Choice(
    micro_batch=2,
    activation_checkpointing="none",
    peak_bytes=1 << 20,
    tokens_per_second=1e5,
    fits=True,
)


def config(changes: dict[str, Any] | None = None) -> Config:
    return make_config({**GPU, **(changes or {})})


@pytest.fixture(scope="module")
def tiny() -> Estimate:
    return estimate(config(FEW), TURING, DISK)


def test_una_configuracion_diminuta_cabe_y_lo_dice_como_estimacion(tiny: Estimate) -> None:
    assert (tiny.fit, tiny.reasons, tiny.fix, tiny.passed) == ("cabe", (), None, True)
    picture = estimate_svg(tiny)
    assert picture == estimate_svg(tiny)
    for words in ("ESTIMACIÓN, no medida", "atrás", size(tiny.memory.phases[-1].reserved_bytes)):
        assert f"<!-- {words}".encode() in picture
    assert b"<!-- build" not in picture
    console = Console(record=True, width=100, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        show_estimate(tiny.model_copy(update={"best": BEST}), console)
    text = capture.get()
    assert "ESTIMACIÓN, no medida" in text
    assert len(text.splitlines()) <= 25


def test_la_estimacion_va_y_vuelve_por_json(tiny: Estimate) -> None:
    assert Estimate.model_validate_json(tiny.model_dump_json()) == tiny


def test_las_cuentas_salen_unas_de_otras(tiny: Estimate) -> None:
    assert tiny.time is not None
    assert tiny.energy is not None
    assert tiny.tokens == 20 * 64
    assert tiny.energy.kwh == pytest.approx(160 * tiny.time.total_seconds / 3.6e6)
    assert tiny.energy.cost is None
    shares = tiny.time.gemm_share + tiny.time.attention_share + tiny.time.pointwise_share
    assert shares == pytest.approx(1)
    assert tiny.time.total_seconds_low < tiny.time.total_seconds < tiny.time.total_seconds_high
    assert tiny.disk.shards_bytes == tiny.tokens  # bytes: un id por byte


@pytest.mark.slow
def test_el_precio_da_el_coste() -> None:
    priced = estimate(config(FEW | {"hardware.preflight.kwh_price": 0.5}), TURING, DISK)
    assert priced.energy is not None
    assert priced.energy.cost == pytest.approx(0.5 * priced.energy.kwh)


def test_sin_tarjeta_conocida_no_hay_tiempo_ni_consejo() -> None:
    unknown = estimate(make_config(), None, DISK)
    assert (unknown.time, unknown.energy, unknown.best) == (None, None, None)
    assert unknown.memory.context_bytes == 0


@pytest.mark.slow
def test_mas_tokens_de_los_que_caben_en_el_disco_se_rechazan() -> None:
    done = estimate(
        config(FEW | {"train.steps": 40_000, "train.save_every": 40_000}), TURING, 2_000_000
    )
    assert done.fit == "cabe"
    assert "no hay disco" in done.reasons[0]
    assert "baja train.steps de 40000 a" in done.reasons[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hardware.dtype": "bf16"}, "bf16"),
        ({"hardware.sdpa_backend": "flash"}, "capacidad 8.0"),
    ],
)
def test_turing_no_admite_bf16_ni_flash(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HardwareError, match=words):
        estimate(config(changes), TURING, DISK)


def test_un_micro_batch_de_512_se_rechaza_en_la_2060() -> None:
    with pytest.raises(ConfigError, match="divisor de 64"):
        resolve("pretrain-2060", ["hardware.micro_batch=512"], ROOT)


@pytest.mark.slow
def test_la_orden_guarda_el_json_y_falla_si_no_pasa(tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    done = estimate_run(config(FEW), tmp_path, quiet)
    saved = estimate_path("prueba", tmp_path)
    assert Estimate.model_validate_json(saved.read_text(encoding="utf-8")) == done
    with pytest.raises(PreflightError, match="no cabe"):
        estimate_run(config(FEW | {"hardware.memory_gib": 0.3}), tmp_path, quiet)
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {saved.name, saved.with_suffix(".svg").name}


def test_el_error_es_medido_entre_estimado(tiny: Estimate) -> None:
    assert tiny.time is not None
    measured = made_up(
        dtype="fp16",
        parameters=tiny.parameters,
        memory=memory(2 * tiny.memory.peak_bytes, peak_allocated_bytes=tiny.memory.live_bytes),
        tokens_per_second=0.9 * tiny.time.tokens_per_second,
    )
    error = estimate_error(tiny, measured)
    assert error.peak_memory == 1
    assert error.allocated_memory == 0
    assert error.tokens_per_second == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="micro_batch"):
        estimate_error(tiny, measured.model_copy(update={"micro_batch": 99}))


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("settings", "gib"),
    [
        (["hardware.micro_batch=8", "hardware.activation_checkpointing=mlp"], 3.7),
        (["hardware.micro_batch=16", "hardware.activation_checkpointing=block"], 2.9),
    ],
)
def test_la_2060_da_lo_que_salio_de_cuentas_independientes(settings: list[str], gib: float) -> None:
    done = estimate(resolve("pretrain-2060", settings, ROOT), TURING, DISK)
    assert done.memory.peak_bytes / GIB == pytest.approx(gib, rel=0.05)
    assert done.fit == "cabe"


def test_comparar_da_la_estimacion_de_lo_mismo_y_su_error(tiny: Estimate) -> None:
    assert tiny.time is not None
    measured = made_up(
        dtype="fp16",
        parameters=tiny.parameters,
        memory=memory(2 * tiny.memory.peak_bytes),
        tokens_per_second=tiny.time.tokens_per_second / 2,
    )
    found = compare(config(FEW), measured)
    assert found is not None
    assert found.peak_bytes == tiny.memory.peak_bytes
    assert found.error == estimate_error(tiny, measured)
    assert found.error.peak_memory == pytest.approx(1.0)
    assert found.error.tokens_per_second == pytest.approx(-0.5)


def test_un_perfil_editado_para_otra_tarjeta_no_se_compara() -> None:
    assert compare(config({"hardware.dtype": "bf16"}), made_up()) is None


def test_una_parada_mientras_se_compara_no_se_traga(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> Estimate:
        raise UnfinishedError("interrumpido", 143)

    monkeypatch.setattr("enlace.preflight.estimate.error.estimate", stopped)
    with pytest.raises(UnfinishedError):
        compare(config(), made_up())


@pytest.mark.slow
def test_en_cpu_un_micro_batch_enorme_se_extrapola_y_no_se_traza() -> None:
    huge = make_config(
        {
            "hardware.micro_batch": 1 << 16,
            "hardware.loss_chunk_rows": 64,
            "train.tokens_per_step": (1 << 16) * make_config().model.seq_len,
        }
    )
    found = estimate(huge, None, DISK, advise=False)
    assert found.memory.extrapolated
    assert found.memory.peak_bytes > found.memory.live_bytes > 0
