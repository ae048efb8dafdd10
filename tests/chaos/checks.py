"""Lo que se exige después de cada muerte y al final; cada fallo es una frase."""

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from enlace.config.schema import Config, TrainConfig
from enlace.errors import CheckpointError
from enlace.files import TEMPORARY_PREFIX
from enlace.train.checkpoint import checkpoint_folders, verify_checkpoint
from enlace.train.export import read_manifest
from enlace.train.retention import kept
from tests.chaos.executor import Death
from tests.chaos.marks import Phase
from tests.train.runs import deterministic_rows, final_state, final_tensors

MODEL = Path("checkpoints/model")
STATE = Path("checkpoints/state")
SIGNAL_EXIT = 128


class Survivors(NamedTuple):
    """Los checkpoints que hay en una carpeta, y los que están rotos."""

    states: dict[Path, dict[str, Any]]
    broken: tuple[str, ...]

    @property
    def newest(self) -> int:
        """El paso del más nuevo; 0 si no hay ninguno."""
        return max((state["step"] for state in self.states.values()), default=0)


def run_folder(home: Path, config: Config) -> Path:
    """La carpeta del run de un entrenamiento."""
    return (home / "runs" / config.run_name).resolve()


def survivors(folder: Path) -> Survivors:
    """Los checkpoints de una carpeta de run, releídos enteros."""
    states, broken = {}, []
    for path in checkpoint_folders(folder):
        try:
            states[path] = verify_checkpoint(path)
        except CheckpointError as error:
            broken.append(str(error))
    return Survivors(states, tuple(broken))


def check_death(
    death: Death, before: Survivors, after: Survivors, train: TrainConfig
) -> Iterator[str]:
    """Lo que no puede pasar en una muerte.

    Args:
        death: cómo fue.
        before: los checkpoints que había al nacer.
        after: los que quedan.
        train: cuándo se guarda y qué se conserva.
    """
    yield from (f"checkpoint roto: {text}" for text in after.broken)
    if not exit_allowed(death, train.steps):
        yield f"acabó con el código {death.code}, que no le corresponde"
    if death.orphans:
        yield "dejó procesos vivos"
    lost = kept(before.states | after.states, train) - after.states.keys()
    yield from (f"ha desaparecido {path.name}" for path in sorted(lost))
    if death.resumed < 0:
        return
    if death.resumed != before.newest:
        yield f"siguió desde el paso {death.resumed} y lo más nuevo era el {before.newest}"
    allowed = allowed_loss(death, train.save_every)
    if lost_steps(death, after) > allowed:
        yield (
            f"pierde {lost_steps(death, after)} pasos (llegó al {death.steps} y queda el "
            f"{after.newest}) y solo podía perder {allowed}"
        )


def lost_steps(death: Death, after: Survivors) -> int:
    """Los pasos que la vida siguiente tendrá que repetir."""
    return max(death.steps - after.newest, 0)


def allowed_loss(death: Death, save_every: int) -> int:
    """Un intervalo, más los pasos dados mientras el último guardado aún se escribía.

    Quien pudo despedirse (código 128 + señal) no pierde nada.
    """
    if death.code == 0 or _said_goodbye(death):
        return 0
    return save_every + (death.steps - death.in_flight if death.in_flight >= 0 else 0)


def exit_allowed(death: Death, steps: int) -> bool:
    """Si el código es el que la documentación promete a esas señales en ese momento."""
    if death.plan is None or not death.sent:
        return death.code == 0
    sent = death.plan.signals[: death.sent]
    if death.code == 0:
        # La señal llegó cuando ya no quedaba nada por hacer, o iba a acabar igual.
        return sent[0] != signal.SIGKILL or death.steps == steps
    if death.code == -signal.SIGKILL:
        return signal.SIGKILL in sent
    gentle = {number for number in sent if number != signal.SIGKILL}
    if death.code in {SIGNAL_EXIT + number for number in gentle}:
        return True
    # Antes de entrenar, y entregando, no hay nada que guardar: vale morir de la señal.
    return death.code in {-number for number in gentle} and not _could_save(death, steps)


def _could_save(death: Death, steps: int) -> bool:
    return death.running and 0 <= death.steps < steps


def _said_goodbye(death: Death) -> bool:
    if death.plan is None or len(set(death.plan.signals)) < len(death.plan.signals):
        return False  # dos Ctrl-C piden salir sin guardar
    return death.running and death.code > SIGNAL_EXIT


def check_end(home: Path, quiet: Path, config: Config) -> Iterator[str]:
    """Lo que debe cumplir un entrenamiento acabado a trozos, frente al seguido en `quiet`."""
    found, expected = run_folder(home, config), run_folder(quiet, config)
    tensors, wanted = final_tensors(found), final_tensors(expected)
    if tensors.keys() != wanted.keys():
        yield "los tensores finales no son los mismos"
        return
    for name, tensor in wanted.items():
        if not torch.equal(tensors[name], tensor):
            yield f"{name} no es idéntico al del entrenamiento seguido"
    yield from _different("state.json", final_state(found), final_state(expected))
    yield from check_table(deterministic_rows(found), deterministic_rows(expected), config)
    tables = [home / "reports/pretrain/train.tsv", found / "train.tsv"]
    if tables[0].read_bytes() != tables[1].read_bytes():
        yield "el train.tsv de los informes no es el de la carpeta del run"
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        if (home / MODEL / name).read_bytes() != (quiet / MODEL / name).read_bytes():
            yield f"{MODEL / name} no es idéntico al del entrenamiento seguido"
    read_manifest(home / MODEL)
    yield from leftovers(home)


def check_table(
    rows: list[tuple[str, ...]], expected: list[tuple[str, ...]], config: Config
) -> Iterator[str]:
    """Cada paso una vez, en orden, y con las cifras del seguido."""
    steps = [int(row[0]) for row in rows[1:]]
    every = config.train.log_every
    wanted = [*range(every, config.train.steps + 1, every)]
    if steps != wanted:
        missing = sorted(set(wanted) - set(steps))
        repeated = sorted({step for step in steps if steps.count(step) > 1})
        yield f"train.tsv: faltan los pasos {missing} y se repiten {repeated}"
    elif rows != expected:
        first = next(row[0] for row, other in zip(rows, expected, strict=True) if row != other)
        yield f"train.tsv: la fila del paso {first} no es la del entrenamiento seguido"


def leftovers(home: Path) -> Iterator[str]:
    """Los temporales que nadie ha recogido."""
    for path in sorted(home.rglob(f"{TEMPORARY_PREFIX}*")):
        yield f"queda un temporal: {path.relative_to(home)}"


def _different(name: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for key in expected:
        if found.get(key) != expected[key]:
            yield f"{name}: {key} no es el del entrenamiento seguido"


def describe_death(death: Death) -> str:
    """Una muerte en una línea, para poder repetirla."""
    plan = death.plan
    if plan is None:
        return f"sin señales, código {death.code}"
    where = "por reloj" if plan.ambush is None else f"emboscada {plan.ambush}"
    return (
        f"{plan.name} {where}{' en proceso nuevo' if plan.fresh else ''}, código {death.code}, "
        f"fase {Phase(death.phase).name}, siguió {death.resumed}, pasos {death.steps}, "
        f"guardado en marcha {death.in_flight}"
    )
