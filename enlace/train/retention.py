"""Qué checkpoints se conservan, cuántos llegan a convivir y cuánto disco piden."""

import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enlace.config.schema import Config, TrainConfig
from enlace.errors import CheckpointError
from enlace.figures import size
from enlace.files import TEMPORARY_PREFIX
from enlace.train.checkpoint import CHECKPOINTS, checkpoint_folders, read_state
from enlace.train.schedule import decay_start, is_time


def prune(run_dir: Path, train: TrainConfig) -> list[Path]:
    """Borra los checkpoints que ya no hacen falta y devuelve cuáles eran.

    Se quedan los `keep_last` últimos, el de mejor validación, uno cada `keep_every` pasos, con WSD
    el que precede al decaimiento (de él parte una rama más larga) y, con `rewind`, los que hacen
    falta para volver. Los que no se pueden leer no se tocan: quizá los escribió otra versión.
    """
    states: dict[Path, dict[str, Any]] = {}
    for path in checkpoint_folders(run_dir):
        try:
            states[path] = read_state(path)
        except CheckpointError:
            continue
    removed = [path for path in states if path not in kept(states, train)]
    for path in removed:
        remove(path)
    return removed


def remove(path: Path) -> None:
    """Borra un checkpoint."""
    # Primero el nombre: un borrado a medias no debe parecer un checkpoint roto.
    retired = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-borrado")
    os.rename(path, retired)
    shutil.rmtree(retired)


def kept(states: Mapping[Path, Mapping[str, Any]], train: TrainConfig) -> set[Path]:
    """Los que se conservan de unos checkpoints, dados del más antiguo al más nuevo."""
    validated = [
        (state["evaluation"]["val_loss"], state["step"], path)
        for path, state in states.items()
        if state["evaluation"].get("val_loss") is not None
    ]
    best = {min(validated)[2]} if validated else set()
    milestones = {path for path, state in states.items() if is_milestone(state["step"], train)}
    recent = {*list(states)[-train.keep_last :]}
    return recent | best | milestones | _rewind_targets(states, train)


def _rewind_targets(states: Mapping[Path, Mapping[str, Any]], train: TrainConfig) -> set[Path]:
    """Los periódicos desde el más nuevo anterior a cualquier accidente que aún no se haya visto.

    Los de después también: cada uno será ese más adelante.
    """
    if not train.rewind or not states:
        return set()
    regular = {
        path: state["step"] for path, state in states.items() if is_regular(state["step"], train)
    }
    horizon = max(state["step"] for state in states.values()) - rewind_reach(train)
    target = max((step for step in regular.values() if step <= horizon), default=0)
    return {path for path, step in regular.items() if step >= target}


def rewind_reach(train: TrainConfig) -> int:
    """Cuántos pasos antes del actual puede haber que volver: lo que tarda en verse un accidente.

    Si picos y desbordes se alternan podría ser más; entonces no habrá a dónde volver, y se dirá.
    """
    return train.max_spikes + train.fp16_max_skips + train.rewind_skip


def is_regular(step: int, train: TrainConfig) -> bool:
    """Si tras `step` pasos se guarda en todo entrenamiento, se haya cortado o no."""
    return step > 0 and is_save_time(step - 1, train)


def is_milestone(step: int, train: TrainConfig) -> bool:
    """Si el checkpoint de `step` se conserva siempre, haya los que haya después."""
    periodic = train.keep_every > 0 and step % train.keep_every == 0
    return periodic or is_branch_point(step, train)


def is_branch_point(step: int, train: TrainConfig) -> bool:
    """Si `step` pasos son los justos antes de que WSD empiece a decaer."""
    return train.schedule == "wsd" and train.decay_steps > 0 and step == decay_start(train)


def is_save_time(step: int, train: TrainConfig) -> bool:
    """Si tras el paso `step` (desde 0) toca guardar."""
    return is_time(step, train.save_every, train) or is_milestone(step + 1, train)


def save_count(train: TrainConfig) -> int:
    """Cuántas veces guarda el bucle un checkpoint, sin recorrer sus pasos."""
    periods = [train.save_every, *_milestone_periods(train)]
    return _count(train.steps, periods, {train.steps, *_branch_points(train)})


def _milestone_count(train: TrainConfig) -> int:
    return _count(train.steps, _milestone_periods(train), _branch_points(train))


def _milestone_periods(train: TrainConfig) -> list[int]:
    return [train.keep_every] if train.keep_every else []


def _branch_points(train: TrainConfig) -> set[int]:
    point = decay_start(train)
    return {point} if is_branch_point(point, train) else set()


def _count(steps: int, periods: list[int], extra: set[int]) -> int:
    """Los pasos de 1 a `steps` que son múltiplos de algún periodo (como mucho dos) o de `extra`."""
    multiples = sum(steps // period for period in periods)
    if len(periods) > 1:
        multiples -= steps // math.lcm(*periods)
    return multiples + sum(
        0 < step <= steps and all(step % period for period in periods) for step in extra
    )


def kept_checkpoints(config: Config) -> int:
    """Cuántos checkpoints llegan a convivir: los conservados y el que se está escribiendo."""
    milestones = _milestone_count(config.train)
    recent = config.train.keep_last
    if config.train.rewind:
        recent = max(recent, math.ceil(rewind_reach(config.train) / config.train.save_every) + 1)
    recent_and_best = min(recent + 1, save_count(config.train) - milestones)
    return milestones + recent_and_best + 1


def check_room(run_dir: Path, config: Config, checkpoint_bytes: int) -> None:
    """Comprueba que los checkpoints de todo el entrenamiento caben en el disco de `run_dir`.

    Args:
        run_dir: carpeta del run; lo que ya ocupan sus checkpoints se descuenta.
        config: cuántos se conservan.
        checkpoint_bytes: lo que ocupa cada uno.

    Raises:
        CheckpointError: no caben; el mensaje da las dos cifras y el remedio.
    """
    count = kept_checkpoints(config)
    present = sum(
        file.stat().st_size
        for folder in checkpoint_folders(run_dir)
        for file in folder.iterdir()
        if file.is_file()
    )
    needed = count * checkpoint_bytes - present
    free = shutil.disk_usage(run_dir).free
    if free < needed:
        raise CheckpointError(
            f"no hay disco para los {count} checkpoints que conviven en {run_dir / CHECKPOINTS}: "
            f"faltan por escribir {size(needed)} y quedan {size(free)}; libera "
            "sitio o baja train.keep_last o sube train.keep_every"
        )
