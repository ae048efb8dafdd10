"""La vuelta atrás: ante un accidente numérico, seguir desde antes sin los lotes de entonces.

Se vuelve al checkpoint periódico más nuevo anterior al accidente y se quitan del flujo los lotes
que lo acompañaron y los `train.rewind_skip` de antes; el paso n recibe entonces el lote siguiente
de los que quedan. Es lo que hizo PaLM con sus picos (Chowdhery et al. 2022, arXiv 2204.02311, §5.1:
volver unos cien pasos y saltar unos cientos de lotes): los mismos lotes, con otros pesos, no daban
pico.

Solo sirven los checkpoints periódicos, y no los que guarda una parada: así un entrenamiento cortado
vuelve al mismo sitio que uno seguido. Si un corte llega antes de guardar la vuelta, el accidente se
repite, y la vuelta con él.
"""

from typing import Any

from enlace.config.schema import TrainConfig
from enlace.errors import CheckpointError, TrainingAbortedError
from enlace.train.checkpoint import Found, checkpoint_folders, step_of, verify_checkpoint
from enlace.train.restore import restore, restore_rng
from enlace.train.resume import Run
from enlace.train.retention import is_regular, remove
from enlace.train.state import Training


def rewind(training: Training, run: Run, accident: TrainingAbortedError) -> None:
    """Deja el entrenamiento como estaba antes de `accident`, con sus lotes quitados.

    Raises:
        TrainingAbortedError: `train.rewind` no está puesto, el accidente se repite, ya van
            `train.max_rewinds` o no queda ningún checkpoint anterior.
    """
    train = training.config.train
    if not train.rewind:
        raise accident
    _check_allowed(run, accident, train)
    run.writer.settle()
    first = accident.first - train.rewind_skip
    found = _target(run, accident, first, train)
    # Los lotes se nombran con los que ya faltaban, así que antes de quitar más.
    batches = [run.stream.index(step) for step in range(first, accident.last + 1)]
    # El tiempo perdido también se entrenó: el reloj no retrocede.
    clock = run.log.clock.state_dict()
    rng = restore(training, found)
    step = training.counters.step
    run.stream.skip(batches)
    run.evaluation = found.state["evaluation"]
    _note(run, accident, step, batches)
    for path in checkpoint_folders(run.folder):
        if step_of(path) > step:
            remove(path)
    run.writer.opened(found.path, step)
    run.log.restart(step, clock, run.evaluation)
    run.log.say(
        f"vuelvo del paso {accident.last} al {step} por {accident.reason}; salto los lotes "
        f"{batches[0]} a {batches[-1]}"
    )
    restore_rng(training, found, rng)


def _check_allowed(run: Run, accident: TrainingAbortedError, train: TrainConfig) -> None:
    past = [rewind for segment in run.segments for rewind in segment["rewinds"]]
    if past and accident.first <= past[-1]["at_step"]:
        raise _stopped(
            accident,
            f"ya se volvió atrás desde el paso {past[-1]['at_step']} y el accidente se repite con "
            "otros lotes, así que no son los datos; baja train.lr, alarga train.warmup o sube "
            "train.rewind_skip",
        )
    if len(past) >= train.max_rewinds:
        raise _stopped(
            accident,
            f"ya se ha vuelto atrás {len(past)} veces (train.max_rewinds = {train.max_rewinds}); "
            "baja train.lr o sube train.max_rewinds",
        )


def _target(run: Run, accident: TrainingAbortedError, first: int, train: TrainConfig) -> Found:
    """El checkpoint periódico sano más nuevo con, como mucho, `first` pasos."""
    for path in reversed(checkpoint_folders(run.folder)):
        if step_of(path) > first or not is_regular(step_of(path), train):
            continue
        try:
            return Found(path, verify_checkpoint(path), ())
        except CheckpointError as error:
            run.log.say(f"aviso: {error}")
    raise _stopped(
        accident,
        f"no queda ningún checkpoint del paso {first} o anterior al que volver; baja train.lr, o "
        "baja train.save_every para la próxima",
    )


def _stopped(accident: TrainingAbortedError, why: str) -> TrainingAbortedError:
    return TrainingAbortedError(
        f"paso {accident.last}: {accident.reason}, y {why}",
        reason=accident.reason,
        first=accident.first,
        last=accident.last,
    )


def _note(run: Run, accident: TrainingAbortedError, step: int, batches: list[int]) -> None:
    """Apunta la vuelta en el segmento actual, con la forma de `enlace.manifest.Rewind`."""
    segment: dict[str, Any] = run.segments[-1]
    segment["from_step"] = min(segment["from_step"], step)
    segment["rewinds"].append(
        {
            "at_step": accident.last,
            "to_step": step,
            "reason": accident.reason,
            "skipped_batches": batches,
        }
    )
