from types import SimpleNamespace
from typing import Any

import pytest

from enlace.preflight.energy import THROTTLE_REASONS, Card, EnergyMeter


class FakeNvml:
    """Un NVML de mentira: contesta lo que se le da y rechaza lo demás."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.handle = ""

    def nvmlInit(self) -> None:  # noqa: N802
        if self.answers.get("broken"):
            raise self.NVMLError

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-7":
            raise self.NVMLError
        self.handle = uuid
        return uuid

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        answer = self.answers.get(name.removeprefix("nvmlDeviceGet"))
        if name.endswith("EventReasons") and "EventReasons" in self.answers.get("missing", ()):
            raise AttributeError(name)

        def ask(handle: str, *_: Any) -> Any:
            assert handle == self.handle
            if answer is None:
                raise self.NVMLError
            return answer() if callable(answer) else answer

        return ask


def card(**answers: Any) -> Card:
    opened = Card.open("7", FakeNvml(**answers))
    assert opened is not None
    return opened


def meter(opened: Card | None, seconds: float = 10.0) -> EnergyMeter:
    ticks = iter([100.0, 100.0 + seconds])
    return EnergyMeter(opened, clock=lambda: next(ticks))


def test_el_contador_de_energia_da_la_potencia_los_kwh_y_el_coste() -> None:
    counter = iter([5_000_000, 6_500_000])
    measured = meter(card(TotalEnergyConsumption=lambda: next(counter)))
    with measured:
        measured.sample()
    use = measured.use(total_seconds=7200, kwh_price=0.2)
    assert use is not None
    # 1500 J en 10 s son 150 W; dos horas, 0,3 kWh.
    assert (use.source, use.watts) == ("contador", 150.0)
    assert use.total_kwh == pytest.approx(0.3)
    assert use.cost == pytest.approx(0.06)


def test_sin_contador_vale_la_media_de_las_muestras() -> None:
    samples = iter([100_000, 140_000])
    measured = meter(card(PowerUsage=lambda: next(samples)))
    with measured:
        measured.sample()
        measured.sample()
    use = measured.use(3600, 0.0)
    assert use is not None
    assert (use.source, use.watts, use.cost) == ("potencia media", 120.0, None)
    assert use.total_kwh == pytest.approx(0.12)


@pytest.mark.parametrize("after", [5_000_000, 4_000_000])
def test_un_contador_parado_o_que_vuelve_a_cero_no_es_una_medida(after: int) -> None:
    counter = iter([5_000_000, after])
    measured = meter(card(TotalEnergyConsumption=lambda: next(counter), PowerUsage=130_000))
    with measured:
        measured.sample()
    use = measured.use(3600, 0.0)
    assert use is not None
    assert (use.source, use.watts) == ("potencia media", 130.0)


def test_un_nvml_sin_una_constante_o_una_pregunta_no_contesta() -> None:
    class Old(FakeNvml):
        @property
        def NVML_CLOCK_SM(self) -> int:  # type: ignore[override]  # noqa: N802
            raise AttributeError

    opened = Card.open("7", Old(ClockInfo=1500, Temperature=71))
    assert opened is not None
    state = opened.state()
    assert (state.sm_clock_mhz, state.temperature_c) == (None, 71)


@pytest.mark.parametrize("opened", [None, card()])
def test_sin_respuesta_no_hay_energia(opened: Card | None) -> None:
    measured = meter(opened)
    with measured:
        measured.sample()
    assert measured.use(3600, 0.2) is None


def test_el_estado_de_la_tarjeta() -> None:
    state = card(
        ClockInfo=1500,
        MaxClockInfo=1680,
        Temperature=71,
        EnforcedPowerLimit=160_000,
        CurrentClocksEventReasons=0x0004 | 0x0040 | 0x0001,
        MemoryInfo=SimpleNamespace(free=123),
    ).state()
    assert (state.sm_clock_mhz, state.max_sm_clock_mhz, state.temperature_c) == (1500, 1680, 71)
    assert state.power_limit_watts == 160.0
    assert state.throttling == ("límite de potencia", "temperatura (hardware)")


def test_lo_que_la_tarjeta_no_contesta_es_nulo() -> None:
    state = card().state()
    assert set(state.model_dump().values()) == {None}
    assert card().free_bytes() is None
    assert card(CurrentClocksEventReasons=0).state().throttling == ()


def test_con_un_controlador_antiguo_se_usa_el_nombre_antiguo() -> None:
    old = card(missing=("EventReasons",), CurrentClocksThrottleReasons=0x0008)
    assert old.state().throttling == ("freno de hardware",)


@pytest.mark.parametrize(
    ("uuid", "answers"), [(None, {}), ("8", {}), ("7", {"broken": True}), ("GPU-8", {})]
)
def test_sin_nvml_o_sin_esa_tarjeta_no_hay_tarjeta(uuid: str | None, answers: Any) -> None:
    assert Card.open(uuid, FakeNvml(**answers)) is None


def test_sin_el_paquete_de_nvml_no_hay_tarjeta(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise ImportError

    monkeypatch.setattr("enlace.preflight.energy.importlib.import_module", missing)
    assert Card.open("7") is None


def test_el_uuid_se_acepta_con_y_sin_prefijo() -> None:
    assert Card.open("GPU-7", FakeNvml()) is not None
    assert card(MemoryInfo=SimpleNamespace(free=123)).free_bytes() == 123


def test_los_nombres_y_los_bits_son_los_de_la_biblioteca_de_nvidia() -> None:
    nvml = pytest.importorskip("pynvml")
    brakes = ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown")
    bits = [getattr(nvml, f"nvmlClocksEventReason{name}") for name in brakes]
    bits.append(nvml.nvmlClocksEventReasonHwPowerBrakeSlowdown)
    assert list(THROTTLE_REASONS) == bits
    asked = (
        "HandleByUUID",
        "TotalEnergyConsumption",
        "PowerUsage",
        "MemoryInfo",
        "EnforcedPowerLimit",
        "ClockInfo",
        "MaxClockInfo",
        "Temperature",
        "CurrentClocksEventReasons",
    )
    assert [name for name in asked if not hasattr(nvml, f"nvmlDeviceGet{name}")] == []
    # Sin controlador, o con uno que no tiene esa tarjeta, no hay nada que medir.
    assert Card.open("7", nvml) is None
