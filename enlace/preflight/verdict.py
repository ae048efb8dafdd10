"""Si un entrenamiento debe empezar: reglas puras sobre lo medido, y el veredicto que lee DVC."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.figures import integer, number, percent, size
from enlace.files import sha256_json, write_json
from enlace.model.cost import state_bytes
from enlace.preflight.disk import most_steps
from enlace.preflight.energy import POWER_LIMIT
from enlace.preflight.health_rules import judge_health
from enlace.preflight.measurement import Failure, Measurement, MemoryUse, Outcome

GIB = 1 << 30
_SLOW_LOADING = 1 / 3
"""Leer datos a menos de tres veces la velocidad de entrenar merece aviso."""
_HIGH_LOSS = 1.5
"""Un modelo recién iniciado da todas las palabras por igual de probables y pierde unos ln V: una
pérdida mayor que esto por ln V merece aviso."""

_NEXT_CHECKPOINTING = {"none": "mlp", "mlp": "block"}

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
        return _judge_failure(config, outcome)
    fit, reasons, warnings = _judge_memory(config, outcome)
    reasons += _judge_disk(config, outcome)
    warnings += [*outcome.warnings, *_speed_warnings(outcome)]
    ill: list[str] = []
    if outcome.health is not None:
        ill, notes = judge_health(outcome.health, config.hardware.preflight, config.train)
        warnings += notes
    loss, notes = _judge_loss(config, outcome)
    # Si fp16 no puede con el modelo, la pérdida es una consecuencia.
    reasons += ill or loss
    warnings += notes
    return Verdict(fit, tuple(reasons), tuple(warnings))


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
        OSError: está y no se deja leer (sin permiso, es una carpeta).
    """
    try:
        verdict: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PreflightError(
            f"falta {path}: el preflight no ha pasado; lanza make preflight"
        ) from None
    except (ValueError, RecursionError):
        verdict = None
    # Ni un campo más: lo que diga uno que esta versión no conoce podría ser en contra.
    is_verdict = isinstance(verdict, dict) and verdict.keys() == {"key", "passed"}
    if not is_verdict or verdict["passed"] is not True:
        raise PreflightError(f"{path} no es un veredicto favorable; lanza make preflight")
    if verdict["key"] != verdict_key(values):
        raise PreflightError(
            f"{path} es de otra configuración de hardware, model o train; lanza make preflight"
        )


def memory_budget(config: Config, memory: MemoryUse) -> int | None:
    """Lo que el entrenamiento puede ocupar: lo libre, o la memoria del perfil si es menos.

    De la del perfil se descuenta el contexto de CUDA, que lo libre ya no incluye.
    """
    if memory.free_bytes is None:
        return None
    return min(memory.free_bytes, _profile_bytes(config) - (memory.context_bytes or 0))


def memory_margin(config: Config, memory: MemoryUse) -> int:
    """Lo que debe quedar libre."""
    return int(config.hardware.memory_margin * min(_profile_bytes(config), memory.total_bytes))


def _profile_bytes(config: Config) -> int:
    return int(config.hardware.memory_gib * GIB)


def _judge_memory(config: Config, outcome: Measurement) -> tuple[Fit, list[str], list[str]]:
    memory, hardware = outcome.memory, config.hardware
    needed, budget = memory.needed_bytes, memory_budget(config, memory)
    if needed is None or budget is None:
        return "no medido", [], ["este sistema no deja medir el pico de memoria"]
    margin = memory_margin(config, memory)
    left = budget - needed
    remedy = _memory_remedy(config, outcome, budget - margin)
    if left < 0:
        reason = f"no cabe: necesita {size(needed)} y hay {size(budget)}; {remedy}"
        return "no cabe", [reason], []
    if left < margin:
        reason = (
            f"cabe demasiado justo: deja libres {size(left)} de {size(budget)} y "
            f"hardware.memory_margin={hardware.memory_margin:g} pide {size(margin)}; "
            f"{remedy}, o cierra otros programas, o acepta un margen menor"
        )
        return "justo", [reason], []
    if memory.allocation_retries:
        reason = (
            f"torch tuvo que vaciar su reserva de memoria {memory.allocation_retries} veces: va al "
            f"límite aunque termine; {shrink(config, None)}"
        )
        return "justo", [reason], []
    return "cabe", [], []


def _memory_remedy(config: Config, outcome: Measurement, room: int) -> str:
    """Bajar el micro-batch si se calcula que basta; si no, recalcular, u otro modelo."""
    fitting = _fitting_micro_batch(config, outcome, room)
    hopeless = fitting is None and bool(smaller_batches(config))
    return shrink(config, fitting, smaller_is_enough=not hopeless)


def _fitting_micro_batch(config: Config, outcome: Measurement, room: int) -> int | None:
    """El mayor micro-batch que cabría en `room`, si lo que no es estado crece con él.

    `None` si ni el de 1, o si lo medido no permite saberlo.
    """
    state = state_bytes(config.model, config.train.optimizer)
    needed = outcome.memory.needed_bytes
    if needed is None or needed <= state:
        return None
    per_row = (needed - state) / config.hardware.micro_batch
    return max(
        (rows for rows in smaller_batches(config) if state + rows * per_row <= room), default=None
    )


def smaller_batches(config: Config) -> list[int]:
    """Los micro-batches menores que el actual que dividen el paso, de menor a mayor."""
    sequences = config.sequences_per_step
    return [rows for rows in range(1, config.hardware.micro_batch) if sequences % rows == 0]


def shrink(config: Config, fitting: int | None, *, smaller_is_enough: bool = True) -> str:
    """El único cambio que haría que cupiera: menos micro-batch, recalcular más o menos modelo.

    Args:
        config: la que no cabe.
        fitting: el micro-batch que se calcula que cabe, si se sabe.
        smaller_is_enough: falso si se sabe que ni con el menor micro-batch cabe.
    """
    smaller = smaller_batches(config)
    if fitting is not None or (smaller and smaller_is_enough):
        rows = smaller[-1] if fitting is None else fitting
        return f"baja hardware.micro_batch de {config.hardware.micro_batch} a {rows}"
    current = config.hardware.activation_checkpointing
    if current in _NEXT_CHECKPOINTING:
        return f"pon hardware.activation_checkpointing: {_NEXT_CHECKPOINTING[current]}"
    return (
        "ni con hardware.micro_batch=1 ni recalculando las activaciones se espera que quepa: elige "
        "un modelo más pequeño o un model.seq_len más corto"
    )


def _speed_warnings(outcome: Measurement) -> list[str]:
    warnings = []
    time = outcome.time
    if time.loading > _SLOW_LOADING * time.step_median:
        warnings.append(
            f"leer los datos cuesta el {percent(time.loading / time.step_median, 0)} de un paso: "
            "pasa data/shards a un disco más rápido"
        )
    brakes = (outcome.card.throttling or ()) if outcome.card is not None else ()
    # Llegar al límite de potencia es lo normal a plena carga: se informa, pero no se avisa.
    unusual = [brake for brake in brakes if brake != POWER_LIMIT]
    if unusual:
        warnings.append(
            f"la tarjeta bajó el reloj por {', '.join(unusual)}: las horas son con ese freno"
        )
    return warnings


def _judge_disk(config: Config, outcome: Measurement) -> list[str]:
    disk, recipe = outcome.disk, config.train
    if disk.needed_bytes <= disk.free_bytes:
        return []
    # Aquí y no arriba: carga torch, y quien espera la medida no debe; casi siempre hay disco.
    from enlace.train.retention import kept_checkpoints

    shards = ""
    if disk.shards_bytes:
        shards = (
            f", de ellos {size(disk.shards_bytes)} para los shards de "
            f"{integer(recipe.steps * recipe.tokens_per_step)} tokens distintos"
        )
    exported = disk.needed_bytes - disk.shards_bytes
    exported -= kept_checkpoints(config) * disk.checkpoint_bytes

    def needed(other: Config) -> int:
        checkpoints = kept_checkpoints(other) * disk.checkpoint_bytes
        return exported + checkpoints + disk.shards_bytes * other.train.steps // recipe.steps

    steps = most_steps(config, disk.free_bytes, needed)
    fewer = f", baja train.steps de {recipe.steps} a {steps}" if steps else ""
    return [
        f"no hay disco: hacen falta {size(disk.needed_bytes)}{shards}, y quedan "
        f"{size(disk.free_bytes)}; libera {size(disk.needed_bytes - disk.free_bytes)}{fewer}, baja "
        f"train.keep_last={recipe.keep_last} o sube train.keep_every={recipe.keep_every}"
    ]


def _judge_loss(config: Config, outcome: Measurement) -> tuple[list[str], list[str]]:
    if outcome.first_loss is None or outcome.last_loss is None:
        reason = (
            "la pérdida no es finita en los pasos medidos, con ids inventados y una tasa pequeña; "
            f"baja model.init_std={config.model.init_std:g}"
        )
        return [reason], []
    chance = math.log(config.model.vocab_size)
    if outcome.first_loss <= _HIGH_LOSS * chance:
        return [], []
    warning = (
        f"la pérdida del primer paso es {number(outcome.first_loss)} y eligiendo al azar sería "
        f"{number(chance)}: el modelo empieza seguro de lo que no sabe; baja "
        f"model.init_std={config.model.init_std:g}"
    )
    return [], [warning]


def _judge_failure(config: Config, failure: Failure) -> Verdict:
    fit: Fit = "no cabe" if failure.kind in ("memory", "killed") else "no medido"
    reasons: list[str] = []
    warnings: list[str] = []
    if failure.health is not None:
        reasons, warnings = judge_health(failure.health, config.hardware.preflight, config.train)
    # Pararse sin encontrar escala es consecuencia de una mala salud, que ya dice su remedio.
    if not (reasons and failure.kind == "refused"):
        reasons.append(_failure_reason(config, failure))
    return Verdict(fit, tuple(reasons), tuple(warnings))


def _failure_reason(config: Config, failure: Failure) -> str:
    remedy = shrink(config, None)
    if failure.kind == "memory":
        return f"no cabe: la memoria se agotó durante la medida; {remedy}"
    if failure.kind == "killed":
        return (
            "no cabe: el sistema mató la medida (SIGKILL), casi siempre por falta de memoria; "
            f"{remedy}"
        )
    if failure.kind == "refused":
        return failure.detail
    return (
        f"la medida murió antes de acabar ({failure.detail}); el mismo fallo pararía el "
        "entrenamiento: corrige la causa y repite make preflight"
    )
