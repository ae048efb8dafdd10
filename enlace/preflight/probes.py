"""Las sondas de fp16: qué escalas sirven, cuánto falta para desbordar y cuánto difiere de fp32.

Montan con `build_training`, suman gradientes con `accumulate` y avanzan con `train_step`, como el
entrenamiento. Usan el modelo recién iniciado y un micro-batch inventado: lo que aquí no va, no va
allí; lo que cambia al aprender (las activaciones crecen) lo vigila el entrenador.

Letras de forma: B secuencias de un micro-batch, T tokens.
"""

import gc
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from enlace.backends import Backend, expands_kv
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.preflight.health import Health, PrecisionGap, ScalePoint, ScaleWindow
from enlace.preflight.probes_activations import activation_peaks
from enlace.preflight.probes_scaling import probe_scaling
from enlace.preflight.synthetic import synthetic_batch
from enlace.train.state import Training
from enlace.train.trainer import accumulate, build_training

EXPONENTS = range(25)
"""Las escalas que se prueban: de 2^0 a 2^24."""
SMALLEST_NORMAL = 2.0**-14
"""Por debajo, fp16 pierde precisión (subnormales) y, desde 2^-25, redondea a cero."""
LOST_LIMIT = 0.05
"""Definición del suelo: la menor escala con la que ningún grupo de matrices pierde más del 5 %."""
_FP16_GROUPS = ("atención", "FFN")
"""Los grupos cuyos gradientes se calculan en fp16; los demás, en fp32, no se hunden."""


def probe_health(config: Config, backend: Backend) -> Health:
    """Mide la salud de fp16 con el modelo recién iniciado.

    Args:
        config: la configuración, con `hardware.dtype` fp16.
        backend: el dispositivo, ya abierto.

    Raises:
        torch.OutOfMemoryError, MemoryError: no cabe ni un micro-batch.
    """
    # Sin compilar: los ganchos que miran las activaciones lo impedirían.
    config = with_hardware(config, compile=False)
    training = build_training(config, backend)
    batch = synthetic_batch(config, config.hardware.micro_batch, 0)
    # Divide como el paso entero: la escala se aplica a gradientes del tamaño de los de verdad.
    targets = config.train.tokens_per_step
    activations = activation_peaks(training, batch)
    window = sweep_scales(training, batch, targets)
    gap = gradients = None
    rows = max(1, config.hardware.micro_batch // 2)
    half = Batch(batch.ids[:rows], batch.targets[:rows])
    exponent = best_exponent(window)
    if exponent is not None:
        loss = backward(training, half, targets, exponent)
        gradients = gradients_on_cpu(training.model, 2.0**exponent)
    del training
    free_memory(backend)
    if gradients is not None:
        gap = _compare(config, full_precision(backend), half, targets, (loss, gradients))
    free_memory(backend)
    scaling = probe_scaling(config, backend)
    free_memory(backend)
    return Health(window=window, activations=activations, gap=gap, scaling=scaling)


def sweep_scales(training: Training, batch: Batch, targets: int) -> ScaleWindow:
    """Un paso hacia atrás por escala, de la mayor a la menor, sobre el mismo micro-batch.

    Args:
        training: el entrenamiento; sus pesos no cambian.
        batch: un micro-batch (B, T).
        targets: objetivos del paso entero, el divisor de la pérdida.
    """
    points: list[ScalePoint] = []
    reference: dict[str, Tensor] | None = None
    for exponent in reversed(EXPONENTS):
        backward(training, batch, targets, exponent)
        gradients = _gradients(training.model)
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients.values())
        if finite and reference is None:
            reference = {name: gradient != 0 for name, gradient in gradients.items()}
        lost = {} if not finite or reference is None else lost_fractions(gradients, reference)
        points.append(ScalePoint(exponent=exponent, finite=finite, lost=lost))
    training.model.zero_grad(set_to_none=True)
    points.reverse()
    return ScaleWindow(
        points=tuple(points),
        ceiling=next((point.exponent for point in points if not point.finite), None),
        floor=next((point.exponent for point in points if _is_above_floor(point)), None),
    )


def lost_fractions(
    gradients: Mapping[str, Tensor], reference: Mapping[str, Tensor]
) -> dict[str, float]:
    """Por grupo, qué fracción de los gradientes que no son cero en la referencia se hunde.

    Args:
        gradients: gradientes escalados, por nombre de parámetro.
        reference: máscara booleana de los que no son cero con la mayor escala finita.
    """
    lost: dict[str, int] = {}
    total: dict[str, int] = {}
    for name, gradient in gradients.items():
        group, mask = parameter_group(name), reference[name]
        sunk = (gradient.abs() < SMALLEST_NORMAL) & mask
        lost[group] = lost.get(group, 0) + int(sunk.sum())
        total[group] = total.get(group, 0) + int(mask.sum())
    return {group: lost[group] / count for group, count in total.items() if count}


def parameter_group(name: str) -> str:
    """A qué grupo del informe pertenece un parámetro."""
    if "norm" in name:
        return "normas"
    if ".attn." in name:
        return "atención"
    return "FFN" if ".mlp." in name else "embeddings"


def best_exponent(window: ScaleWindow) -> int | None:
    """El centro de la ventana o, si no la hay, la mayor escala finita."""
    if window.top is None or window.floor is None:
        return window.top
    return (window.floor + window.top) // 2


def backward(training: Training, batch: Batch, targets: int, exponent: int) -> float:
    """Deja en el modelo los gradientes por 2^exponent; devuelve la pérdida media del lote."""
    training.model.zero_grad(set_to_none=True)
    scaler = torch.amp.GradScaler(training.backend.device.type, init_scale=2.0**exponent)
    loss = accumulate(replace(training, scaler=scaler), batch, targets)
    return loss * targets / batch.targets.numel()


def gradients_on_cpu(model: torch.nn.Module, scale: float) -> dict[str, Tensor]:
    """Los gradientes sin escala, en CPU y fp32, para compararlos sin ocupar la tarjeta."""
    return {name: gradient.cpu() / scale for name, gradient in _gradients(model).items()}


def precision_gap(
    losses: tuple[float, float], half: Mapping[str, Tensor], full: Mapping[str, Tensor]
) -> PrecisionGap | None:
    """La diferencia entre dos precisiones; `None` si alguna cifra no es finita.

    Args:
        losses: pérdida en fp16 y en fp32.
        half: gradientes en fp16.
        full: gradientes en fp32, con los mismos nombres.
    """
    dot = norm_half = norm_full = 0.0
    for name, gradient in full.items():
        a, b = half[name].double().flatten(), gradient.double().flatten()
        dot += float(a @ b)
        norm_half += float(a @ a)
        norm_full += float(b @ b)
    size = math.sqrt(norm_half * norm_full)
    difference = abs(losses[0] - losses[1]) / losses[1] if losses[1] else math.inf
    if not (math.isfinite(difference) and math.isfinite(size)) or size == 0:
        return None
    return PrecisionGap(loss_difference=difference, gradient_cosine=dot / size)


def with_hardware(config: Config, **changes: Any) -> Config:
    """La misma configuración con otros valores en `hardware`."""
    return config.model_copy(update={"hardware": config.hardware.model_copy(update=changes)})


def free_memory(backend: Backend) -> None:
    """Suelta lo que ya no usa nadie, también la reserva de CUDA."""
    gc.collect()
    if backend.device.type == "cuda":
        torch.cuda.empty_cache()


def full_precision(backend: Backend) -> Backend:
    """El mismo dispositivo en fp32, con un núcleo de atención que lo admita."""
    kernel = backend.sdpa_backend
    if backend.device.type == "cuda" and kernel in ("flash", "cudnn"):
        kernel = "mem_efficient"  # los otros dos solo calculan en 16 bits
    return replace(backend, dtype=torch.float32, sdpa_backend=kernel, expand_kv=expands_kv(kernel))


def _compare(
    config: Config,
    backend: Backend,
    batch: Batch,
    targets: int,
    half: tuple[float, Mapping[str, Tensor]],
) -> PrecisionGap | None:
    """Repite el lote en fp32 con los mismos pesos, que salen de la misma semilla.

    Args:
        config: la configuración.
        backend: el dispositivo en fp32.
        batch: el lote (B, T).
        targets: el divisor de la pérdida.
        half: pérdida y gradientes en fp16.
    """
    try:
        training = build_training(config, backend)
        loss = accumulate(training, batch, targets) * targets / batch.targets.numel()
        gradients = gradients_on_cpu(training.model, 1.0)
    except (torch.OutOfMemoryError, MemoryError):
        return None  # fp32 pide el doble: que no quepa no dice nada del entrenamiento
    return precision_gap((half[0], loss), half[1], gradients)


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def _is_above_floor(point: ScalePoint) -> bool:
    return point.finite and all(point.lost.get(group, 0.0) <= LOST_LIMIT for group in _FP16_GROUPS)
