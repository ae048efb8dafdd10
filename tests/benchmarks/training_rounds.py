"""El reparto de turnos: ENLACE y cada rival, uno detrás de otro, en la misma ejecución.

En cada vuelta, para cada rival, ENLACE y él dan los mismos pasos seguidos; en las vueltas impares
empieza el rival. De cada pareja sale un cociente, así que lo que cambie en la máquina durante la
ejecución afecta por igual a los dos términos.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from tests.benchmarks.training_pool import MissingPeerError, Peer, PeerFailedError
from tests.benchmarks.training_works import Work

Start = Callable[[str], Peer]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """Lo que ha costado un turno: segundos, segundos de CPU, bytes y las pérdidas de sus pasos."""

    wall: float
    cpu: float
    steps: int
    peak: int | None
    base: int | None
    losses: tuple[float, ...]

    @property
    def step_seconds(self) -> float:
        """Segundos por paso."""
        return self.wall / self.steps


@dataclass
class Comparison:
    """Todo lo medido de un trabajo.

    `pairs` tiene, por rival, las parejas (el nuestro, el suyo); `failures`, por qué no está quien
    falta; `machine`, lo que contestó la máquina en cada vuelta.
    """

    work: str
    tokens: int
    ours: str
    parameters: dict[str, int] = field(default_factory=dict)
    pairs: dict[str, list[tuple[Turn, Turn]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    first_losses: dict[str, list[float]] = field(default_factory=dict)
    kernels: dict[str, dict[str, int]] = field(default_factory=dict)
    machine: list[dict[str, Any]] = field(default_factory=list)

    def turns(self, name: str) -> list[Turn]:
        """Los turnos de un contrincante; los de ENLACE son los de todas sus parejas."""
        if name == self.ours:
            return [ours for pairs in self.pairs.values() for ours, _ in pairs]
        return [theirs for _, theirs in self.pairs.get(name, [])]

    def to_json(self) -> dict[str, Any]:
        """Para el fichero de resultados."""
        return asdict(self)


def compare(
    work: Work,
    ours: str,
    rivals: Sequence[str],
    pairs: int,
    start: Start,
    *,
    machine: str | None = None,
    profile: bool = False,
    say: Say = lambda _: None,
) -> Comparison:
    """Mide un trabajo.

    Args:
        work: cuántos pasos tiene un turno y cuántos se dan antes de medir.
        ours: el nombre del nuestro.
        rivals: los nombres de los demás.
        pairs: vueltas.
        start: arranca un contrincante por su nombre; puede lanzar `MissingPeerError` o
            `PeerFailedError`, y entonces la comparación sigue sin él.
        machine: quién mide la máquina en cada vuelta, si se quiere.
        profile: al acabar, contar los núcleos que lanza un paso de cada uno.
        say: por dónde se cuenta el avance.
    """
    result = Comparison(work.name, work.tokens, ours)
    names = [ours, *rivals, *([machine] if machine else [])]
    alive: dict[str, Peer] = {}
    try:
        for name in names:
            _attempt(result, alive, name, partial(_prepare, result, work, name, start, alive))
            say(f"{work.name}: {name} {result.failures.get(name, 'listo')}")
        for number in range(pairs):
            for rival in rivals:
                _pair(result, alive, work, rival, reverse=bool(number % 2))
            if machine in alive:
                _attempt(result, alive, machine, partial(_look, result, machine, alive))
            say(f"{work.name}: vuelta {number + 1} de {pairs}")
        for name in [name for name in alive if profile and name != machine]:
            _attempt(result, alive, name, partial(_profile, result, name, alive))
    finally:
        for peer in alive.values():
            peer.close()
    return result


def _prepare(
    result: Comparison, work: Work, name: str, start: Start, alive: dict[str, Peer]
) -> None:
    peer = alive[name] = start(name)
    result.parameters[name] = peer.parameters
    reply = peer.ask({"do": "run", "steps": work.warmup})
    result.first_losses[name] = reply["losses"]


def _pair(
    result: Comparison, alive: dict[str, Peer], work: Work, rival: str, *, reverse: bool
) -> None:
    """Un turno de cada uno; si falla cualquiera, la pareja no cuenta."""
    if rival not in alive or result.ours not in alive:
        return
    order = [rival, result.ours] if reverse else [result.ours, rival]
    turns: dict[str, Turn] = {}
    for name in order:
        _attempt(result, alive, name, partial(_run, turns, alive, name, work.steps))
    if len(turns) == len(order):
        result.pairs.setdefault(rival, []).append((turns[result.ours], turns[rival]))


def _run(turns: dict[str, Turn], alive: dict[str, Peer], name: str, steps: int) -> None:
    turns[name] = _turn(alive[name].ask({"do": "run", "steps": steps}))


def _look(result: Comparison, machine: str, alive: dict[str, Peer]) -> None:
    result.machine.append(alive[machine].ask({"do": "run", "steps": 1}))


def _profile(result: Comparison, name: str, alive: dict[str, Peer]) -> None:
    result.kernels[name] = alive[name].ask({"do": "profile"})["kernels"]


def _attempt(
    result: Comparison, alive: dict[str, Peer], name: str, action: Callable[[], None]
) -> None:
    """Hace algo con un contrincante; si falla, apunta por qué y sigue sin él."""
    try:
        action()
    except (MissingPeerError, PeerFailedError) as error:
        result.failures[name] = str(error)
        if (peer := alive.pop(name, None)) is not None:
            peer.close()


def _turn(reply: dict[str, Any]) -> Turn:
    return Turn(
        reply["wall"],
        reply["cpu"],
        reply["steps"],
        reply["peak"],
        reply["base"],
        tuple(reply["losses"]),
    )
