"""Medidas inventadas para probar las reglas sin medir nada."""

from typing import Any

from enlace.preflight.measurement import DiskUse, LossScaling, Measurement, MemoryUse, TimeUse

GIB = 1 << 30

TIME = TimeUse(
    build=1.0,
    warmup=2.0,
    steps=(1.0, 1.5),
    step_median=1.25,
    step_p90=1.45,
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
        "first_loss": 10.4,
        "last_loss": 10.3,
        "time": TIME,
        "memory": memory(2 * GIB),
        "disk": DiskUse(checkpoint_bytes=600, needed_bytes=3000, free_bytes=3000),
        "loss_scaling": None,
    }
    return Measurement.model_validate(values | changes)


def memory(peak: int | None, **changes: Any) -> MemoryUse:
    values: dict[str, Any] = {
        "peak_bytes": peak,
        "peak_allocated_bytes": peak,
        "free_bytes": 5 * GIB,
        "total_bytes": 6 * GIB,
        "allocation_retries": 0,
    }
    return MemoryUse.model_validate(values | changes)


def scaling(**changes: Any) -> LossScaling:
    values: dict[str, Any] = {
        "calibration_skips": 2, "steps": 20, "skips": 0, "final_scale": 4096.0
    }  # fmt: skip
    return LossScaling.model_validate(values | changes)
