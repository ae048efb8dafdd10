"""Las tablas del estudio, en Markdown, y lo que dicen de cada pregunta.

Las dos recetas de una comparación llevan cada una su mejor tasa, elegida con la primera semilla, y
se restan semilla a semilla: con la misma, ven los mismos lotes.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enlace.figures import counted, integer, number, short
from tests.benchmarks.loss_study_plan import (
    RECIPES,
    SEEDS,
    SHORT_STEPS,
    STEPS,
    TRAINER_LR,
    Job,
    Losses,
    best_lr,
    job_of,
    loss_of,
    read_losses,
    tried,
)

MIN_RATES = 5
"""Tasas de AdamW que hacen falta para dar por buena la mejor."""
Record = Mapping[str, Any]


class Verdict(NamedTuple):
    """Una pregunta, su respuesta y en qué se apoya."""

    question: str
    answer: str
    reason: str


def tables(records: Sequence[Record]) -> str:
    """Todo: respuestas, mejores tasas, tasas probadas y entrenamientos uno a uno."""
    losses = read_losses(records)
    parts = [_verdict_table(verdicts(records)), _best_table(losses), _rate_table(losses)]
    return "\n\n".join([*parts, _run_table(records)])


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Las respuestas a las preguntas del estudio."""
    losses = read_losses(records)
    return [
        _compare(losses, "muon-wsd", "adamw-wsd"),
        _shorter(losses),
        _cheaper(records),
        _compare(losses, "adamw-wsd", "adamw-cosine"),
        _compare(losses, "muon-wsd", "muon-cosine"),
        _against_default(losses),
        _compare(losses, "adamw-wsd", "transformers"),
        _compare(losses, "adamw-wsd", "transformers-warmup"),
    ]


def step_cost(records: Iterable[Record], optimizer: str) -> float | None:
    """Segundos de CPU de un paso, con el optimizador, por cada segundo de gradientes.

    Los dos se miden en el mismo proceso y por turnos, así que la carga ajena los encarece a la vez.
    """
    shares = [
        1 + record["cpu_seconds"]["optimizer"] / record["cpu_seconds"]["gradients"]
        for record in records
        if RECIPES[record["recipe"]].get("optimizer") == optimizer and not record["failure"]
    ]
    return statistics.median(shares) if shares else None


def _seeds(losses: Losses, recipe: str, steps: int = STEPS) -> dict[int, float]:
    """La pérdida de cada semilla con la mejor tasa de la receta."""
    lr = best_lr(losses, recipe)
    found = {job: loss for job, loss in losses.items() if (job.recipe, job.lr) == (recipe, lr)}
    return {
        seed: found[job] for seed in SEEDS if (job := Job(recipe, lr or 0, seed, steps)) in found
    }


def _answer(gains: Sequence[float]) -> str:
    """Lo que dicen las diferencias, una por semilla; positivas si sí."""
    if not gains:
        return "faltan entrenamientos"
    if all(gain >= 0 for gain in gains):
        answer = "sí"
    else:
        answer = "no" if all(gain < 0 for gain in gains) else "depende de la semilla"
    missing = len(SEEDS) - len(gains)
    return answer if missing <= 0 else f"{answer}, a falta de {counted(missing, 'semilla')}"


def _compare(losses: Losses, first: str, second: str) -> Verdict:
    """Si `first` acaba con menos pérdida que `second`, con los mismos tokens."""
    ours, theirs = _seeds(losses, first), _seeds(losses, second)
    gains = [theirs[seed] - ours[seed] for seed in SEEDS if seed in ours and seed in theirs]
    loose = [name for name in (first, second) if gains and not _is_bracketed(losses, name)]
    reason = "; ".join([_gains(gains), *(f"tasa de {name} sin acotar" for name in loose)])
    return Verdict(f"¿acaba {first} por debajo de {second}?", _answer(gains), reason)


def _shorter(losses: Losses) -> Verdict:
    """Si Muon con menos pasos llega a la mejor de las tasas de AdamW."""
    question = (
        f"¿acaba muon-wsd, en {SHORT_STEPS} pasos, como mucho donde la mejor de las tasas de "
        f"adamw-wsd en {STEPS}?"
    )
    rates = len(tried(losses, "adamw-wsd"))
    if rates < MIN_RATES:
        return Verdict(question, "faltan entrenamientos", f"{rates} tasas de AdamW de {MIN_RATES}")
    best, quick = _seeds(losses, "adamw-wsd"), _seeds(losses, "muon-wsd", SHORT_STEPS)
    gains = [best[seed] - quick[seed] for seed in SEEDS if seed in best and seed in quick]
    return Verdict(question, _answer(gains), f"{_gains(gains)}; {rates} tasas de AdamW")


def _cheaper(records: Sequence[Record]) -> Verdict:
    """Si esos pasos de Muon gastan menos CPU que los de AdamW."""
    question = f"¿gasta muon-wsd en {SHORT_STEPS} pasos menos CPU que adamw-wsd en {STEPS}?"
    muon, adamw = step_cost(records, "muon"), step_cost(records, "adamw")
    if muon is None or adamw is None:
        return Verdict(question, "faltan entrenamientos", "")
    ratio = muon / adamw
    whole = ratio * SHORT_STEPS / STEPS
    reason = f"un paso cuesta {number(ratio, 3)} veces el de AdamW, y el run, {number(whole)} veces"
    return Verdict(question, "sí" if whole < 1 else "no", reason)


def _against_default(losses: Losses) -> Verdict:
    """Si la mejor receta de ENLACE gana a transformers tal como viene."""
    ours = _seeds(losses, "adamw-wsd")
    gains = [
        losses[job] - ours[seed]
        for seed in SEEDS
        if seed in ours and (job := Job("transformers", TRAINER_LR, seed)) in losses
    ]
    question = "¿acaba adamw-wsd por debajo de transformers con su tasa de fábrica?"
    return Verdict(question, _answer(gains), _gains(gains))


def _gains(gains: Iterable[float]) -> str:
    text = "; ".join(number(gain, 3) if math.isfinite(gain) else "divergió" for gain in gains)
    return f"nats de ventaja por semilla: {text}" if text else "sin datos"


def _verdict_table(found: Iterable[Verdict]) -> str:
    return _markdown(("pregunta", "respuesta", "en qué se apoya"), "---", found)


def _best_table(losses: Losses) -> str:
    rows = []
    for recipe in RECIPES:
        for steps in (STEPS, SHORT_STEPS):
            seeds = _seeds(losses, recipe, steps)
            if not seeds:
                continue
            lr = best_lr(losses, recipe) or 0
            values = [_loss(seeds[seed]) if seed in seeds else "–" for seed in SEEDS]
            bounded = "sí" if _is_bracketed(losses, recipe) else "no"
            mean = _loss(statistics.fmean(seeds.values()))
            rows.append((recipe, short(lr), str(steps), *values, mean, bounded))
    header = ("receta", "mejor tasa", "pasos", *(f"semilla {seed}" for seed in SEEDS))
    return _markdown((*header, "media", "entre dos peores"), "--:", rows)


def _is_bracketed(losses: Losses, recipe: str) -> bool:
    """Si la mejor tasa está entre dos peores."""
    rates = [lr for lr in tried(losses, recipe) if lr != TRAINER_LR]
    return best_lr(losses, recipe) in rates[1:-1]


def _rate_table(losses: Losses) -> str:
    rates = sorted({job.lr for job in losses})
    rows = []
    for recipe in RECIPES:
        if found := tried(losses, recipe):
            rows.append((recipe, *(_loss(found[lr]) if lr in found else "–" for lr in rates)))
    return _markdown(("receta", *(short(lr) for lr in rates)), "--:", rows)


def _run_table(records: Iterable[Record]) -> str:
    rows = []
    for record in sorted(records, key=lambda record: _run_order(job_of(record))):
        job, seconds = job_of(record), record["cpu_seconds"]
        windows = [number(value, 2) for value in list(record["train_losses"].values())[1::2]]
        rows.append(
            (
                job.recipe,
                short(job.lr),
                str(job.seed),
                integer(job.steps),
                " / ".join(windows) or "–",
                record["failure"] or _loss(loss_of(record)),
                *(number(seconds[part], 1) for part in ("gradients", "optimizer", "validation")),
                number(record["load"], 1),
            )
        )
    header = ("receta", "tasa", "semilla", "pasos", "entrenamiento, a cada cuarto", "validación")
    return _markdown((*header, "s gradientes", "s optimizador", "s validar", "carga"), "--:", rows)


def _run_order(job: Job) -> tuple[int, int, float, int]:
    return list(RECIPES).index(job.recipe), -job.steps, job.lr, job.seed


def _loss(value: float) -> str:
    return number(value, 3) if math.isfinite(value) else "divergió"


def _markdown(header: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ("---", *(align for _ in header[1:])), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
