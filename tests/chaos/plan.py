"""El plan de cada muerte: cómo y cuándo. Todo sale de la semilla."""

import random
import signal
from typing import NamedTuple

from tests.chaos.marks import Phase

KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
WAYS: tuple[tuple[tuple[signal.Signals, ...], int], ...] = (
    ((KILL,), 8),
    ((TERM,), 4),
    ((INT,), 3),
    ((INT, INT), 2),
    ((TERM, KILL), 3),
)
"""Señales de una muerte y con qué peso se elige. Dos seguidas: quien no tiene paciencia."""
AMBUSHED: dict[Phase, tuple[int, float]] = {
    Phase.START: (16, 1.0),
    Phase.STEP: (8, 1.0),
    Phase.SNAPSHOT: (2, 1.0),
    Phase.WAIT: (2, 0.5),
    Phase.VALIDATION: (1, 0.5),
    Phase.LOG: (24, 1.0),
    Phase.DELIVERY: (25, 0.5),
    Phase.WRITING: (45, 2.5),
    Phase.RENAME: (4, 1.5),
    Phase.CHECK: (2, 1.0),
    Phase.PRUNING: (16, 2.5),
}
"""Fases con emboscada: entre cuántas de sus llamadas al sistema se elige, y con qué peso."""
AMBUSH_SHARE = 0.55
FRESH_SHARE = 0.02
EARLY_SHARE = 0.2
LATEST_MOMENT = 0.5
SECOND_SIGNAL_SECONDS = 0.03


class Ambush(NamedTuple):
    """Pararse justo antes de la llamada número `call` (desde 1) de una fase."""

    phase: Phase
    call: int


class Plan(NamedTuple):
    """Una muerte.

    Attributes:
        signals: las señales, en orden.
        ambush: dónde se para a esperarlas; None si llegan cuando marque el reloj.
        moment: cuándo, en fracción de lo que dura un entrenamiento tranquilo.
        from_birth: si ese tiempo se cuenta desde que nace o desde que entrena.
        gap: segundos entre las dos señales, si son dos.
        fresh: si es un proceso nuevo de principio a fin y no una bifurcación del arnés.
    """

    signals: tuple[signal.Signals, ...]
    ambush: Ambush | None
    moment: float
    from_birth: bool
    gap: float
    fresh: bool

    @property
    def name(self) -> str:
        """Las señales, como se escriben en la tabla."""
        return "+".join(number.name.removeprefix("SIG") for number in self.signals)


WAY_NAMES = tuple("+".join(n.name.removeprefix("SIG") for n in way) for way, _ in WAYS)


def draw(seed: int, training: int, life: int) -> Plan:
    """El plan de la vida `life` del entrenamiento `training`: función pura de los tres números."""
    rng = random.Random(f"{seed}/{training}/{life}")
    (signals,) = rng.choices([way for way, _ in WAYS], [weight for _, weight in WAYS])
    (phase,) = rng.choices(list(AMBUSHED), [weight for _, weight in AMBUSHED.values()])
    ambush = Ambush(phase, rng.randint(1, AMBUSHED[phase][0]))
    return Plan(
        signals,
        ambush if rng.random() < AMBUSH_SHARE else None,
        moment=rng.random() * LATEST_MOMENT,
        from_birth=rng.random() < EARLY_SHARE,
        gap=rng.random() * SECOND_SIGNAL_SECONDS,
        fresh=rng.random() < FRESH_SHARE,
    )
