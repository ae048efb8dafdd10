from math import log
from pathlib import Path
from typing import Any

import pytest

from enlace.errors import PreflightError
from enlace.model.cost import state_bytes
from enlace.preflight.measurement import CardState, DiskUse, Failure, MemoryUse
from enlace.preflight.verdict import (
    judge,
    require_verdict,
    verdict_key,
    write_verdict,
)
from tests.preflight.support_preflight import GIB, TIME, health, made_up, memory, peaks, window
from tests.support import make_config

CONFIG = make_config()
MARGIN = int(0.1 * 4 * GIB)
"""La configuración de prueba declara 4 GiB y pide libre el 10 %."""


def test_lo_que_cabe_con_margen_pasa_sin_avisos() -> None:
    verdict = judge(CONFIG, made_up())
    assert (verdict.passed, verdict.fit) == (True, "cabe")
    assert (verdict.reasons, verdict.warnings) == ((), ())


@pytest.mark.parametrize(
    ("peak", "fit"),
    [
        (4 * GIB - MARGIN, "cabe"),
        (4 * GIB - MARGIN + 1, "justo"),
        (4 * GIB, "justo"),
        (4 * GIB + 1, "no cabe"),
    ],
)
def test_el_limite_de_memoria_es_exacto(peak: int, fit: str) -> None:
    verdict = judge(CONFIG, made_up(memory=memory(peak)))
    assert verdict.fit == fit
    assert verdict.passed == (fit == "cabe")


def test_manda_la_memoria_libre_si_es_menor_que_la_del_perfil() -> None:
    verdict = judge(CONFIG, made_up(memory=memory(2 * GIB, free_bytes=2 * GIB - 1)))
    assert verdict.fit == "no cabe"
    assert "necesita 2,00\u00a0GiB y hay 2,00\u00a0GiB" in verdict.reasons[0]


STATE = state_bytes(make_config().model, "adamw")


@pytest.mark.parametrize(
    ("micro_batch", "needed", "remedy"),
    [
        # 3,6 GiB útiles; cada secuencia pide 1 GiB además del estado: caben 2 de 4.
        (4, STATE + 4 * GIB, "baja hardware.micro_batch de 4 a 2"),
        # Cada una pide 2 GiB: solo cabe una.
        (4, STATE + 8 * GIB, "baja hardware.micro_batch de 4 a 1"),
        # Ni una: bajarlo no bastaría.
        (4, STATE + 20 * GIB, "pon hardware.activation_checkpointing: mlp"),
        (1, STATE + 8 * GIB, "pon hardware.activation_checkpointing: mlp"),
    ],
)
def test_el_remedio_de_memoria_es_un_solo_cambio_que_se_calcula_que_basta(
    micro_batch: int, needed: int, remedy: str
) -> None:
    config = make_config({"hardware.micro_batch": micro_batch})
    assert remedy in judge(config, made_up(memory=memory(needed))).reasons[0]


@pytest.mark.parametrize(
    ("current", "remedy"),
    [
        ("none", "pon hardware.activation_checkpointing: mlp"),
        ("mlp", "pon hardware.activation_checkpointing: block"),
        ("block", "elige un modelo más pequeño"),
    ],
)
def test_con_micro_batch_1_el_remedio_es_recalcular_mas(current: str, remedy: str) -> None:
    config = make_config({"hardware.micro_batch": 1, "hardware.activation_checkpointing": current})
    assert remedy in judge(config, made_up(memory=memory(9 * GIB))).reasons[0]


def test_el_remedio_salta_los_micro_batch_que_no_dividen() -> None:
    config = make_config({"hardware.micro_batch": 5, "train.tokens_per_step": 32 * 15})
    assert "de 5 a 3" in judge(config, Failure(kind="memory", detail="x")).reasons[0]


def test_lo_que_crece_fuera_de_torch_y_el_contexto_tambien_cuentan() -> None:
    room = 4 * GIB - MARGIN
    assert judge(CONFIG, made_up(memory=memory(room - 10, non_torch_bytes=10))).fit == "cabe"
    assert judge(CONFIG, made_up(memory=memory(room - 10, non_torch_bytes=11))).fit == "justo"
    # Del perfil (4 GiB) se quita el contexto; de lo libre (5 GiB) ya está quitado.
    assert judge(CONFIG, made_up(memory=memory(room, context_bytes=1))).fit == "justo"
    tight = memory(room, context_bytes=1, free_bytes=4 * GIB - 1)
    assert judge(CONFIG, made_up(memory=tight)).fit == "justo"


@pytest.mark.parametrize(("loading", "warned"), [(0.4, False), (0.42, True)])
def test_leer_datos_a_menos_de_tres_veces_la_velocidad_se_avisa(
    loading: float, warned: bool
) -> None:
    verdict = judge(CONFIG, made_up(time=TIME.model_copy(update={"loading": loading})))
    assert (verdict.passed, bool(verdict.warnings)) == (True, warned)


@pytest.mark.parametrize(
    ("brakes", "warned"),
    [(None, False), ((), False), (("límite de potencia",), False), (("temperatura",), True)],
)
def test_solo_un_freno_fuera_de_lo_normal_se_avisa(
    brakes: tuple[str, ...] | None, warned: bool
) -> None:
    card = CardState(
        sm_clock_mhz=None,
        max_sm_clock_mhz=None,
        temperature_c=None,
        power_limit_watts=None,
        throttling=brakes,
    )
    verdict = judge(CONFIG, made_up(card=card))
    assert (verdict.passed, bool(verdict.warnings)) == (True, warned)


def test_un_reintento_del_asignador_es_ir_al_limite() -> None:
    verdict = judge(CONFIG, made_up(memory=memory(GIB, allocation_retries=1)))
    assert (verdict.passed, verdict.fit) == (False, "justo")


@pytest.mark.parametrize("use", [memory(None), memory(GIB, free_bytes=None)])
def test_lo_que_no_se_pudo_medir_se_avisa_y_no_se_da_por_bueno(use: MemoryUse) -> None:
    verdict = judge(CONFIG, made_up(memory=use))
    assert (verdict.passed, verdict.fit) == (True, "no medido")
    assert len(verdict.warnings) == 1


def test_el_disco_justo_pasa_y_un_byte_menos_no() -> None:
    tight = DiskUse(checkpoint_bytes=600, shards_bytes=0, needed_bytes=3000, free_bytes=2999)
    verdict = judge(CONFIG, made_up(disk=tight))
    assert judge(CONFIG, made_up()).passed
    assert not verdict.passed
    assert "train.keep_last=2" in verdict.reasons[0]


@pytest.mark.parametrize("losses", [{"first_loss": None}, {"last_loss": None}])
def test_una_perdida_no_finita_no_pasa(losses: dict[str, Any]) -> None:
    verdict = judge(CONFIG, made_up(**losses))
    assert not verdict.passed
    assert "no es finita" in verdict.reasons[0]


def test_mas_tokens_de_los_que_caben_en_el_disco_no_pasan() -> None:
    disk = DiskUse(checkpoint_bytes=1, shards_bytes=GIB, needed_bytes=GIB + 5, free_bytes=GIB)
    reason = judge(CONFIG, made_up(disk=disk)).reasons[0]
    assert "1,00\u00a0GiB para los shards de 5120 tokens" in reason


def test_los_avisos_del_dispositivo_llegan_al_veredicto() -> None:
    assert judge(CONFIG, made_up(warnings=("ojo",))).warnings == ("ojo",)


def test_un_fp16_enfermo_no_pasa_y_uno_sano_si() -> None:
    assert judge(CONFIG, made_up(dtype="fp16", health=health())).passed
    ill = judge(CONFIG, made_up(dtype="fp16", health=health(window=window(floor=None))))
    assert not ill.passed
    assert ill.fit == "cabe"


def test_si_el_entrenamiento_se_detuvo_la_salud_dice_por_que() -> None:
    failure = Failure(kind="refused", detail="x", health=health(activations=peaks(None)))
    reasons = judge(CONFIG, failure).reasons
    assert len(reasons) == 1
    assert "desborda en salida de FFN de la capa 0" in reasons[0]
    well = Failure(kind="refused", detail="x", health=health())
    assert judge(CONFIG, well).reasons == ("x",)


def test_si_fp16_no_puede_con_el_modelo_la_perdida_no_es_otro_motivo() -> None:
    ill = made_up(last_loss=None, health=health(activations=peaks(None)))
    reasons = judge(CONFIG, ill).reasons
    assert len(reasons) == 1
    assert "desborda" in reasons[0]


@pytest.mark.parametrize(("loss", "warned"), [(1.5 * log(256), False), (8.4, True)])
def test_empezar_peor_que_al_azar_se_avisa(loss: float, warned: bool) -> None:
    verdict = judge(CONFIG, made_up(first_loss=loss))
    assert (verdict.passed, bool(verdict.warnings)) == (True, warned)
    if warned:
        assert "es 8,40 y eligiendo al azar sería 5,55" in verdict.warnings[0]
        assert "baja model.init_std=0.02" in verdict.warnings[0]


def test_se_dicen_todos_los_motivos_a_la_vez() -> None:
    full = DiskUse(checkpoint_bytes=600, shards_bytes=0, needed_bytes=3000, free_bytes=0)
    bad = made_up(memory=memory(9 * GIB), disk=full, last_loss=None)
    assert len(judge(CONFIG, bad).reasons) == 3


@pytest.mark.parametrize(
    ("failure", "fit", "piece"),
    [
        (Failure(kind="memory", detail="x"), "no cabe", "baja hardware.micro_batch de 2 a 1"),
        (Failure(kind="killed", detail="SIGKILL"), "no cabe", "SIGKILL"),
        (Failure(kind="crashed", detail="SIGABRT"), "no medido", "SIGABRT"),
        (Failure(kind="refused", detail="bf16 no es nativo"), "no medido", "bf16 no es nativo"),
    ],
)
def test_una_medida_fallida_nunca_pasa_y_dice_por_que(
    failure: Failure, fit: str, piece: str
) -> None:
    verdict = judge(CONFIG, failure)
    assert not verdict.passed
    assert verdict.fit == fit
    assert piece in verdict.reasons[0]


def test_el_veredicto_tiene_bytes_estables_y_su_clave_solo_depende_de_los_valores(
    tmp_path: Path,
) -> None:
    key = verdict_key({"train.steps": 300, "hardware.dtype": "fp32"})
    assert key == verdict_key({"hardware.dtype": "fp32", "train.steps": 300})
    assert key != verdict_key({"train.steps": 301, "hardware.dtype": "fp32"})
    write_verdict(tmp_path / "verdict.json", key)
    expected = f'{{\n  "key": "{key}",\n  "passed": true\n}}\n'
    assert (tmp_path / "verdict.json").read_text("utf-8") == expected


def test_el_veredicto_vale_solo_para_sus_valores(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    with pytest.raises(PreflightError, match="falta"):
        require_verdict(path, {"train.steps": 300})
    write_verdict(path, verdict_key({"train.steps": 300}))
    require_verdict(path, {"train.steps": 300})
    with pytest.raises(PreflightError, match="otra configuración"):
        require_verdict(path, {"train.steps": 301})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"key": "x"}',
        b'{"key": "x", "passed": "true"}',
        b'{"key": "x", "passed": true, "revoked": true}',
    ],
)
def test_un_veredicto_ilegible_o_no_favorable_se_rechaza(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "verdict.json"
    path.write_bytes(content)
    with pytest.raises(PreflightError, match=r"verdict\.json no es un veredicto favorable"):
        require_verdict(path, {})


def test_una_carpeta_en_el_sitio_del_veredicto_no_es_que_falte(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        require_verdict(tmp_path, {})
