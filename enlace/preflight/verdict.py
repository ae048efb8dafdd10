"""Si un entrenamiento debe empezar: reglas puras sobre lo medido, y el veredicto que lee DVC."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.files import sha256_json, write_json
from enlace.preflight.measurement import Failure, LossScaling, Measurement, MemoryUse, Outcome
from enlace.reports.text import integer, percent, size

GIB = 1 << 30
RULE_OF_THREE = 3
"""Cero fallos en n pruebas solo demuestran, al 95 %, una tasa menor que 3/n (Hanley, 1983)."""

Fit = Literal["cabe", "justo", "no cabe", "no medido"]


@dataclass(frozen=True)
class Verdict:
    """La decisión: pasa si no hay motivos en contra; los avisos no la cambian."""

    fit: Fit
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Si el entrenamiento puede empezar."""
        return not self.reasons


def judge(config: Config, outcome: Outcome) -> Verdict:
    """Aplica las reglas a una medida o a su fracaso. Función pura."""
    if isinstance(outcome, Failure):
        fit: Fit = "no cabe" if outcome.kind in ("memory", "killed") else "no medido"
        return Verdict(fit, (_failure_reason(config, outcome),), ())
    fit, reasons, warnings = _judge_memory(config, outcome.memory)
    reasons += _judge_disk(config, outcome) + _judge_loss(outcome)
    if outcome.loss_scaling is not None:
        scaling_reasons, scaling_warnings = _judge_scaling(config, outcome.loss_scaling)
        reasons += scaling_reasons
        warnings += scaling_warnings
    return Verdict(fit, tuple(reasons), tuple(warnings))


def skip_bound(scaling: LossScaling) -> float | None:
    """Cota superior al 95 % de la tasa de pasos saltados si no se vio ninguno: 3/n."""
    if scaling.skips or not scaling.steps:
        return None
    return min(1.0, RULE_OF_THREE / scaling.steps)


def verdict_key(values: Mapping[str, Any]) -> str:
    """SHA-256 de los valores que declara la etapa: {"train.steps": 300, …}."""
    return sha256_json(dict(values))


def write_verdict(path: Path, key: str) -> None:
    """Escribe el veredicto favorable; los mismos valores dan siempre los mismos bytes."""
    write_json(path, {"key": key, "passed": True})


def require_verdict(path: Path, values: Mapping[str, Any]) -> None:
    """Comprueba que `path` es el veredicto favorable de exactamente estos valores.

    Raises:
        PreflightError: falta, no es legible, no es favorable o es de otros valores.
    """
    try:
        verdict: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise PreflightError(
            f"falta {path}: el preflight no ha pasado; lanza make preflight"
        ) from None
    except ValueError:
        verdict = None
    if not isinstance(verdict, dict) or verdict.get("passed") is not True:
        raise PreflightError(f"{path} no es un veredicto favorable; lanza make preflight")
    if verdict.get("key") != verdict_key(values):
        raise PreflightError(
            f"{path} es de otra configuración de hardware, model o train; lanza make preflight"
        )


def _judge_memory(config: Config, memory: MemoryUse) -> tuple[Fit, list[str], list[str]]:
    hardware = config.hardware
    if memory.peak_bytes is None or memory.free_bytes is None:
        return "no medido", [], ["este sistema no deja medir el pico de memoria"]
    profile = int(hardware.memory_gib * GIB)
    budget = min(memory.free_bytes, profile)
    margin = int(hardware.memory_margin * min(profile, memory.total_bytes))
    left = budget - memory.peak_bytes
    if left < 0:
        reason = (
            f"no cabe: necesita {size(memory.peak_bytes)} y hay {size(budget)}; {_shrink(config)}"
        )
        return "no cabe", [reason], []
    if left < margin:
        reason = (
            f"cabe demasiado justo: deja libres {size(left)} de {size(budget)} y "
            f"hardware.memory_margin={hardware.memory_margin:g} pide {size(margin)}; "
            f"{_shrink(config)}, o cierra otros programas, o acepta un margen menor"
        )
        return "justo", [reason], []
    if memory.allocation_retries:
        reason = (
            f"torch tuvo que vaciar su reserva de memoria {memory.allocation_retries} veces: va al "
            f"límite aunque termine; {_shrink(config)}"
        )
        return "justo", [reason], []
    return "cabe", [], []


def _judge_disk(config: Config, outcome: Measurement) -> list[str]:
    disk = outcome.disk
    if disk.needed_bytes <= disk.free_bytes:
        return []
    return [
        f"no hay disco: los checkpoints ocuparán {size(disk.needed_bytes)} y quedan "
        f"{size(disk.free_bytes)}; libera sitio, baja train.keep_last={config.train.keep_last} o "
        f"conserva menos con train.keep_every={config.train.keep_every}"
    ]


def _judge_loss(outcome: Measurement) -> list[str]:
    if outcome.first_loss is not None and outcome.last_loss is not None:
        return []
    return [
        "la pérdida no es finita en los pasos medidos, con ids inventados y una tasa pequeña; "
        "revisa model.init_std y, en fp16, baja train.fp16_init_scale"
    ]


def _judge_scaling(config: Config, scaling: LossScaling) -> tuple[list[str], list[str]]:
    """Con la escala ya calibrada, se salta como mucho un paso cada `fp16_growth_interval`."""
    train = config.train
    if scaling.steps == 0:
        reason = (
            f"fp16 saltó los {scaling.calibration_skips} pasos medidos y no encontró una escala; "
            f"baja train.fp16_init_scale={train.fp16_init_scale:g} o sube "
            "hardware.preflight.steps"
        )
        return [reason], []
    allowed = 1 + scaling.steps // train.fp16_growth_interval
    seen = (
        f"fp16 saltó {integer(scaling.skips)} de {integer(scaling.steps)} pasos ya calibrados "
        f"({percent(scaling.skips / scaling.steps)}) y se esperan como mucho {integer(allowed)}"
    )
    if scaling.skips > allowed:
        return [f"{seen}; baja train.fp16_init_scale o sube train.fp16_growth_interval"], []
    return [], [seen] if scaling.skips else []


def _failure_reason(config: Config, failure: Failure) -> str:
    if failure.kind == "memory":
        return f"no cabe: la memoria se agotó durante la medida; {_shrink(config)}"
    if failure.kind == "killed":
        return (
            "no cabe: el sistema mató la medida (SIGKILL), casi siempre por falta de memoria; "
            f"{_shrink(config)}"
        )
    if failure.kind == "refused":
        return failure.detail
    return (
        f"la medida murió antes de acabar ({failure.detail}); el mismo fallo pararía el "
        "entrenamiento: corrige la causa y repite make preflight"
    )


def _shrink(config: Config) -> str:
    """El remedio para la memoria: el siguiente micro-batch que divide el paso, si lo hay."""
    current, sequences = config.hardware.micro_batch, config.sequences_per_step
    smaller = [rows for rows in range(1, current) if sequences % rows == 0]
    if smaller:
        return f"baja hardware.micro_batch de {current} a {smaller[-1]}"
    return (
        "con hardware.micro_batch=1 ya no se puede partir más: elige un modelo más pequeño o un "
        "model.seq_len más corto"
    )
