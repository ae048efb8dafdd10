"""Empezar o seguir un entrenamiento: qué debe coincidir, qué puede cambiar y qué se anota.

Debe coincidir todo lo que decide el resultado: los valores de `Config.identity`, los datos y el
tokenizador. Puede cambiar lo demás (las claves `operational` del esquema, el código, las
versiones, la máquina): el entrenamiento sigue como un *segmento* nuevo, que dice desde qué paso ya
no se promete la igualdad bit a bit y por qué.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enlace.backends import Backend
from enlace.config.schema import Config
from enlace.config.stored import stored_config
from enlace.data.streams import TokenStream
from enlace.errors import CheckpointError
from enlace.progress import StepClock, TrainLog, finite_or_none
from enlace.provenance import versions
from enlace.train.artifact import Artifact
from enlace.train.branch import begin_from
from enlace.train.checkpoint import MODEL, STATE_VERSION, Found, newest_complete
from enlace.train.restore import restore, restore_rng
from enlace.train.retention import check_room
from enlace.train.schedule import decay_start, learning_rate
from enlace.train.skipping import SkippingStream
from enlace.train.state import Training
from enlace.train.tensors import (
    expected_moments,
    model_tensors,
    optimizer_tensors,
    rng_tensors,
)
from enlace.train.writer import CheckpointWriter

FIXED_ORIGIN = ("data", "tokenizer")
"""Huellas de `origin` que no pueden cambiar a mitad de un entrenamiento."""
CODE_ORIGIN = ("code", "code_normalized")
"""Huellas de `origin` que pueden cambiar, con un aviso y un segmento nuevo."""


@dataclass
class Run:
    """Un entrenamiento en marcha visto desde fuera del cálculo: su carpeta y su historia.

    Attributes:
        folder: carpeta del run.
        stream: de dónde salen los batches, sin los que quitó una vuelta atrás.
        log: el registro.
        origin: de qué código y datos viene (JSON).
        segments: tramos del entrenamiento; cada uno dice desde qué paso y qué cambió.
        evaluation: cifras de la última validación.
        writer: quien guarda los checkpoints.
    """

    folder: Path
    stream: SkippingStream
    log: TrainLog
    origin: dict[str, Any]
    writer: CheckpointWriter
    segments: list[dict[str, Any]] = field(default_factory=list)
    evaluation: dict[str, float | None] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path | None:
        """El último checkpoint completo, guardado o leído."""
        return self.writer.newest


def open_run(
    training: Training,
    stream: TokenStream,
    run_dir: Path,
    log: TrainLog,
    origin: dict[str, Any],
    parent: Artifact | None = None,
) -> Run:
    """Continúa desde el checkpoint completo más nuevo de `run_dir`, o empieza si no hay ninguno.

    Al empezar, si hay `parent`, parte de él.

    Raises:
        CheckpointError: los checkpoints que hay no sirven, o son de otra configuración u otros
            datos.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    device = training.backend.device
    writer = CheckpointWriter(run_dir, training.config, device, log.say, log.sync)
    run = Run(run_dir, SkippingStream(stream), log, origin, writer)
    # Orden de reanudación. Cada punto supone hechos los anteriores:
    # 1. Modelo, optimizador y escala ya existen, recién hechos por `build_training`.
    # 2. Se busca el checkpoint completo más nuevo: se borran temporales y se comprueban resúmenes.
    found = newest_complete(run_dir)
    if found is None:
        begun = parent and begin_from(training, run.stream, parent, origin.get("tokenizer"))
        step = training.counters.step
        run.segments = [_segment(training, origin, from_step=step, differences={})]
        log.restart(step, StepClock().state_dict(), {})
        if begun:
            log.say(f"empiezo en el paso {step}, desde {begun[0].path}")
        if begun and begun[1]:
            restore_rng(training, *begun)
        return run
    for reason in found.rejected:
        log.say(f"aviso: {reason}")
    # 3. Se rechaza lo que no puede coincidir por casualidad: configuración, stream, datos.
    _check_identity(found, training.config)
    run.stream.load_state(found.state["stream"])
    _check_origin(found, origin)
    # 4. Pesos, momentos, escala y cuentas, en ese orden.
    rng = restore(training, found)
    # 5. La historia: lo que cambió abre un segmento.
    writer.opened(found.path, training.counters.step)
    run.evaluation = found.state["evaluation"]
    run.segments = _continued_segments(training, origin, found, log)
    # 6. El registro, recortado al paso del checkpoint, y el reloj.
    log.restart(training.counters.step, found.state["clock"], run.evaluation)
    done, steps = training.counters.step, training.config.train.steps
    going = f"sigo desde el paso {done}" if done < steps else f"los {steps} pasos ya están dados"
    log.say(f"{going} ({found.path})")
    # 7. El azar, lo último: nada entre aquí y el primer paso debe consumirlo.
    restore_rng(training, found, rng)
    return run


def save_run(training: Training, run: Run) -> None:
    """Guarda un checkpoint de este momento sin esperar a que llegue al disco.

    Raises:
        CheckpointError: han fallado demasiados guardados seguidos; los anteriores siguen intactos.
    """
    optimizer = optimizer_tensors(training.model, training.optimizer)
    run.writer.save(
        run_state(training, run),
        model_tensors(training.model),
        optimizer | rng_tensors(training.backend.device),
    )


def prepare_saves(training: Training, run: Run) -> None:
    """Reserva memoria para los guardados y mira si caben en el disco, si es que quedan pasos.

    Raises:
        CheckpointError: en el disco no caben los checkpoints de este entrenamiento.
    """
    if training.counters.step < training.config.train.steps:
        check_room(run.folder, training.config, reserve_saves(training, run))


def reserve_saves(training: Training, run: Run) -> int:
    """Reserva la memoria en la que se copia cada instante y devuelve cuánto ocupa en bytes."""
    moments = expected_moments(training.model, training.optimizer)
    optimizer = moments | rng_tensors(training.backend.device)
    return run.writer.reserve(model_tensors(training.model), optimizer)


def run_state(training: Training, run: Run) -> dict[str, Any]:
    """Lo que `state.json` guarda (sin los resúmenes de los ficheros, que añade quien escribe)."""
    config, step = training.config, training.counters.step
    return {
        "version": STATE_VERSION,
        "step": step,
        "tokens": training.counters.tokens,
        "identity": config.identity(),
        "fingerprint": config.fingerprint(),
        "counters": asdict(training.counters),
        "schedule": {
            "steps": config.train.steps,
            "decay_start": decay_start(config.train),
            "next_lr": learning_rate(step, config.train),
        },
        "scaler": training.scaler.state_dict(),
        "watch": training.watch.state_dict(),
        "stream": run.stream.state_dict(step),
        "clock": run.log.clock.state_dict(),
        "evaluation": {name: finite_or_none(value) for name, value in run.evaluation.items()},
        "origin": run.origin,
        "segments": run.segments,
        "config": config.training_values(),
    }


def _check_identity(found: Found, config: Config) -> None:
    """Rechaza un checkpoint de otra identidad, nombrando la primera clave que difiere."""
    saved = saved_config(found)
    differences = compare(saved.identity_values(), config.identity_values())
    for key, (before, now) in differences.items():
        raise CheckpointError(
            f"{found.path} se entrenó con {key}={before!r} y ahora vale {now!r}; esa clave decide "
            f"el resultado y no puede cambiar a medias: devuélvela a {before!r} o entrena en otra "
            "carpeta"
        )


def _check_origin(found: Found, origin: Mapping[str, Any]) -> None:
    """Rechaza otros datos u otro tokenizador, nombrando las dos huellas."""
    for key in FIXED_ORIGIN:
        before, now = found.state["origin"].get(key), origin.get(key)
        if before != now:
            raise CheckpointError(
                f"{found.path} se entrenó con otro origen: {key} era {before} y ahora es {now}; "
                "recupera aquellos datos (dvc checkout) o entrena en otra carpeta"
            )


def saved_config(found: Found) -> Config:
    """La configuración que un checkpoint guarda, validada.

    Raises:
        CheckpointError: esta versión no la entiende.
    """
    return stored_config(found.state["config"], found.path)


def _continued_segments(
    training: Training, origin: dict[str, Any], found: Found, log: TrainLog
) -> list[dict[str, Any]]:
    """Los segmentos guardados y, si algo cambió desde entonces, uno nuevo."""
    segments: list[dict[str, Any]] = found.state["segments"]
    settings = compare(found.state["config"], training.config.training_values())
    resumed = {"step": found.state["step"], "model_sha256": found.state["files"][MODEL]}
    current = _segment(training, origin, training.counters.step, {}, resumed)
    last = segments[-1] if segments else {}
    surroundings = {key: value for key, value in current.items() if key not in _HISTORY}
    changed = compare({key: last.get(key) for key in surroundings}, surroundings)
    if not settings and not changed:
        return segments
    if any(key in changed for key in CODE_ORIGIN):
        log.say(
            "aviso: el código ha cambiado desde el checkpoint; sigo, y el manifiesto anota desde "
            f"qué paso ({training.counters.step})"
        )
    return [*segments, current | {"differences": settings | changed}]


_HISTORY = ("from_step", "started", "differences", "git", "resumed_from", "rewinds")
"""Lo que un segmento cuenta sin que su cambio abra otro: guardar en git un código igual, por
ejemplo."""


def _segment(
    training: Training,
    origin: Mapping[str, Any],
    from_step: int,
    differences: dict[str, Any],
    resumed_from: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Un segmento con la forma de `enlace.manifest.Segment`."""
    backend: Backend = training.backend
    return {
        "from_step": from_step,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "differences": differences,
        **{key: origin.get(key) for key in CODE_ORIGIN},
        "git": origin.get("git"),
        "versions": versions(),
        "device": backend.description.name,
        "threads": backend.threads,
        "resumed_from": resumed_from,
        "rewinds": [],
    }


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Las hojas que difieren entre dos árboles, por su clave con puntos: [antes, ahora]."""
    differences: dict[str, list[Any]] = {}
    for key in [*before, *(key for key in now if key not in before)]:
        left, right = before.get(key), now.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            inner = compare(left, right)
            differences |= {f"{key}.{name}": values for name, values in inner.items()}
        elif left != right:
            differences[key] = [left, right]
    return differences
