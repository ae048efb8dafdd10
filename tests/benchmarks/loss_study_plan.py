"""Qué entrenamientos hacen falta y en qué orden: el plan es una función de lo ya apuntado.

Primero va lo que decide más, de modo que parar en cualquier momento deja lo más útil. Una etapa que
necesita el resultado de otra espera a que acabe, y mientras tanto se adelantan las demás.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

STEPS = 160
SHORT_STEPS = STEPS * 3 // 4
SEEDS = (1, 2, 3)
RECIPES: dict[str, dict[str, Any]] = {
    "adamw-wsd": {"optimizer": "adamw", "schedule": "wsd"},
    "adamw-cosine": {"optimizer": "adamw", "schedule": "cosine"},
    "muon-wsd": {"optimizer": "muon", "schedule": "wsd"},
    "muon-cosine": {"optimizer": "muon", "schedule": "cosine"},
    "transformers": {"warmup_steps": 0},
    "transformers-warmup": {"warmup_steps": STEPS // 10},
}
"""Las de ENLACE cambian claves de `train`; las de transformers, argumentos de su Trainer."""
TRAINER_LR = 5e-5
"""La tasa de fábrica de `TrainingArguments`."""
ADAMW_GRID = (4e-3, 2e-3, 8e-3, 1e-3, 1.6e-2)
MUON_GRID = (4e-3, 8e-3, 2e-3, 1.6e-2)
TRAINER_GRID = (TRAINER_LR, 4e-3, 2e-3, 1e-3)
_FACTOR = 2.0


class Job(NamedTuple):
    """Un entrenamiento."""

    recipe: str
    lr: float
    seed: int
    steps: int = STEPS


Losses = Mapping[Job, float]
"""La pérdida de validación de cada entrenamiento acabado; infinita, si divergió."""


def read_losses(records: Iterable[Mapping[str, Any]]) -> dict[Job, float]:
    """Lo acabado, según las líneas de `runs.jsonl`."""
    return {job_of(record): loss_of(record) for record in records}


def job_of(record: Mapping[str, Any]) -> Job:
    """El entrenamiento de una línea."""
    return Job(record["recipe"], record["lr"], record["seed"], record["steps"])


def loss_of(record: Mapping[str, Any]) -> float:
    """Su pérdida de validación, o infinito si no acabó con un número."""
    loss = record["val_loss"]
    return math.inf if loss is None else float(loss)


def pending(losses: Losses, size: str = "study") -> list[Job]:
    """Lo que falta con el modelo de ese nombre, en orden y sin repetir."""
    plan = _plan(losses) if size == "study" else _confirmation(losses)
    return [job for job in dict.fromkeys(plan) if job not in losses]


def tried(
    losses: Losses, recipe: str, seed: int = SEEDS[0], steps: int = STEPS
) -> dict[float, Any]:
    """De cada tasa probada con esa receta y semilla a su pérdida, de menor a mayor tasa."""
    found = {
        job.lr: loss for job, loss in losses.items() if job == Job(recipe, job.lr, seed, steps)
    }
    return dict(sorted(found.items()))


def best_lr(losses: Losses, recipe: str) -> float | None:
    """La tasa con menos pérdida (primera semilla, todos los pasos); None si no hay ninguna."""
    found = tried(losses, recipe)
    return min(found, key=found.__getitem__) if found else None


def bracket(losses: Losses, recipe: str, grid: Iterable[float]) -> tuple[list[Job], float | None]:
    """Las tasas que hay que probar y la mejor, si ya está entre dos peores.

    Si la mejor queda en un extremo, se prueba la siguiente de fuera: el óptimo no está acotado.
    """
    jobs = [Job(recipe, lr, SEEDS[0]) for lr in grid]
    if any(job not in losses for job in jobs):
        return jobs, None
    found = tried(losses, recipe)
    best = min(found, key=found.__getitem__)
    # La de fábrica de transformers está muy lejos de las demás: no acota nada.
    near = [lr for lr in found if lr != TRAINER_LR]
    outside = {min(near): best / _FACTOR, max(near): best * _FACTOR}.get(best)
    if outside is None:
        return jobs, best
    return [*jobs, Job(recipe, outside, SEEDS[0])], None


def _plan(losses: Losses) -> Iterator[Job]:
    adamw_jobs, adamw = bracket(losses, "adamw-wsd", ADAMW_GRID)
    muon_jobs, muon = bracket(losses, "muon-wsd", MUON_GRID)
    yield from _interleave(adamw_jobs, muon_jobs)
    yield from _short(muon, SEEDS[0])
    yield from _again(adamw, muon, SEEDS[1])
    cosine = {"adamw-cosine": adamw, "muon-cosine": muon}
    for recipe, lr in cosine.items():
        yield from [] if lr is None else [Job(recipe, lr, SEEDS[0])]
    trainer_jobs, trainer = bracket(losses, "transformers", TRAINER_GRID)
    yield from trainer_jobs
    yield from _again(adamw, muon, SEEDS[2])
    tuned = {}
    for recipe, lr in cosine.items():
        if lr is not None:
            jobs, tuned[recipe] = bracket(losses, recipe, (lr, lr / _FACTOR, lr * _FACTOR))
            yield from jobs
    if trainer is not None:
        warm = (trainer, trainer * _FACTOR)
        jobs, tuned["transformers-warmup"] = bracket(losses, "transformers-warmup", warm)
        yield from jobs
    for seed in SEEDS[1:]:
        for recipe, lr in {**tuned, "transformers": trainer}.items():
            yield from [] if lr is None else [Job(recipe, lr, seed)]


def _confirmation(losses: Losses) -> Iterator[Job]:
    """Las mejores recetas del barrido en otro modelo, cada una con su tasa, y la corta."""
    adamw_jobs, adamw = bracket(losses, "adamw-wsd", ADAMW_GRID[:2])
    muon_jobs, muon = bracket(losses, "muon-wsd", MUON_GRID[:2])
    yield from _interleave(adamw_jobs, muon_jobs)
    yield from _short(muon, SEEDS[0])
    yield from [] if adamw is None else [Job("adamw-cosine", adamw, SEEDS[0])]


def _again(adamw: float | None, muon: float | None, seed: int) -> Iterator[Job]:
    """Las dos mejores y la corta, con otra semilla."""
    if adamw is not None:
        yield Job("adamw-wsd", adamw, seed)
    if muon is not None:
        yield Job("muon-wsd", muon, seed)
    yield from _short(muon, seed)


def _short(muon: float | None, seed: int) -> Iterator[Job]:
    if muon is not None:
        yield Job("muon-wsd", muon, seed, SHORT_STEPS)


def _interleave(first: list[Job], second: list[Job]) -> Iterator[Job]:
    for place in range(max(len(first), len(second))):
        yield from first[place : place + 1]
        yield from second[place : place + 1]
