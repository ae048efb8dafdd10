"""Medidas inventadas para probar las reglas sin medir nada."""

from typing import Any

import pytest

from enlace.config.schema import Config
from enlace.preflight.estimate import affine, capacity
from enlace.preflight.estimate.recorder import Trace
from enlace.preflight.estimate.trace import trace_training
from enlace.preflight.health import (
    ActivationPeak,
    Health,
    LossScaling,
    PrecisionGap,
    ScalePoint,
    ScaleWindow,
)
from enlace.preflight.measurement import DiskUse, Measurement, MemoryUse, PhaseMemory, TimeUse

GIB = 1 << 30

TIME = TimeUse(
    build=1.0,
    warmup=2.0,
    steps=(1.0, 1.5),
    step_median=1.25,
    step_p90=1.45,
    loading=0.01,
    loading_from="shards",
    evaluation=3.0,
    save=0.5,
    load=0.5,
    total_median=74160.0,
    total_p90=90000.0,
)


def made_up(**changes: Any) -> Measurement:
    """Una medida que pasa con la configuración de `tests.support` (4 GiB, margen 0,1)."""
    values: dict[str, Any] = {
        "device": "GPU de prueba",
        "torch_version": "2.13.0",
        "dtype": "fp32",
        "sdpa_backend": "mem_efficient",
        "parameters": 50_608_128,
        "flops_per_token": 379_000_000,
        "tokens_per_parameter": 20.0,
        "tokens_per_step": 256,
        "micro_batch": 2,
        "accumulation": 4,
        "tokens_per_second": 13_600.4,
        "slow_tokens_per_second": 12_000.0,
        "first_loss": 5.6,
        "last_loss": 5.5,
        "time": TIME,
        "memory": memory(2 * GIB),
        "disk": DiskUse(checkpoint_bytes=600, shards_bytes=0, needed_bytes=3000, free_bytes=3000),
        "energy": None,
        "card": None,
        "health": None,
        "warnings": (),
    }
    return Measurement.model_validate(values | changes)


def memory(peak: int | None, **changes: Any) -> MemoryUse:
    values: dict[str, Any] = {
        "peak_bytes": peak,
        "peak_allocated_bytes": peak,
        "free_bytes": 5 * GIB,
        "total_bytes": 6 * GIB,
        "steady_bytes": peak,
        "steady_allocated_bytes": peak,
        "non_torch_bytes": 0,
        "context_bytes": None,
        "allocation_retries": 0,
        "phases": (PhaseMemory(name="pasos", peak_bytes=peak, allocated_bytes=peak),),
    }
    return MemoryUse.model_validate(values | changes)


def scaling(**changes: Any) -> LossScaling:
    """Un escalado sano: 200 pasos calibrados sin un salto y con crecimientos que no topan."""
    values: dict[str, Any] = {
        "calibration_skips": 2,
        "steps": 200,
        "skips": 0,
        "growths": 10,
        "growth_skips": 0,
        "growth_interval": 1000,
        "scales": (2048.0, 4096.0),
    }
    return LossScaling.model_validate(values | changes)


def window(floor: int | None = 4, top: int | None = 18) -> ScaleWindow:
    """Una ventana de escalas: bajo `floor` se hunde todo y por encima de `top` desborda."""
    points = tuple(
        ScalePoint(
            exponent=exponent,
            finite=top is not None and exponent <= top,
            lost={"FFN": float(floor is None or exponent < floor), "atención": 0.0},
        )
        for exponent in range(25)
    )
    ceiling = 0 if top is None else top + 1
    return ScaleWindow(points=points, ceiling=ceiling if ceiling < 25 else None, floor=floor)


def peaks(largest: float | None = 64.0, residual: float | None = 2.0) -> tuple[ActivationPeak, ...]:
    return (
        ActivationPeak(kind="producto SwiGLU", layer=0, largest=1.0),
        ActivationPeak(kind="salida de FFN", layer=0, largest=largest),
        ActivationPeak(kind="residuo", layer=0, largest=residual),
        ActivationPeak(kind="logits", layer=None, largest=largest),
    )


def health(**changes: Any) -> Health:
    """Una salud de fp16 sin nada que decir."""
    values: dict[str, Any] = {
        "window": window(),
        "activations": peaks(),
        "gap": PrecisionGap(loss_difference=1e-5, gradient_cosine=0.99999),
        "scaling": scaling(),
    }
    return Health.model_validate(values | changes)


def remember_traces(monkeypatch: pytest.MonkeyPatch, known: dict[str, Trace]) -> None:
    """Traza una sola vez lo que da la misma traza, que es casi todo lo que tarda una estimación.

    Ni la memoria del perfil, ni la tarjeta, ni la duración del run cambian una traza.
    """

    def traced(config: Config) -> Trace:
        hardware = config.hardware.model_dump(
            exclude={"name", "memory_gib", "memory_margin", "compile", "threads", "preflight"}
        )
        train = config.train.model_dump(exclude={"steps", "save_every", "keep_every"})
        key = f"{hardware} {train} {config.model} {config.data.document_mask}"
        if key not in known:
            known[key] = trace_training(config)
        return known[key]

    for module in (affine, capacity):
        monkeypatch.setattr(module, "trace_training", traced)
