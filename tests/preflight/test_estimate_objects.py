"""Los objetos de torch en la traza: cuáles se apuntan, dónde y hasta cuándo viven."""

from collections import Counter

import pytest

from enlace.preflight.estimate.memory import replay, replay_history, replay_on_heap
from enlace.preflight.estimate.objects import NODE
from enlace.preflight.estimate.recorder import (
    BACKWARD,
    DATA,
    FORWARD,
    OBJECT,
    SOMETIMES,
    Event,
    Trace,
)
from enlace.preflight.estimate.trace import trace_training
from tests.support import make_config


def trace_with(checkpointing: str) -> Trace:
    return trace_training(make_config({"hardware.activation_checkpointing": checkpointing}))


@pytest.fixture(scope="module")
def plain() -> Trace:
    return trace_with("none")


def lives(trace: Trace, size: int) -> list[tuple[Event, Event]]:
    """El nacimiento y la muerte de cada objeto de `size` bytes que muere."""
    born = {event.name: event for event in trace.events if event.size == size}
    return [
        (born[event.name], event)
        for event in trace.events
        if not event.size and event.name in born and born[event.name].kind != DATA
    ]


def test_nada_muere_antes_de_nacer_ni_dos_veces(plain: Trace) -> None:
    alive: dict[int, Event] = {}
    for event in plain.events:
        if event.size:
            assert event.name not in alive
            alive[event.name] = event
        else:
            assert alive.pop(event.name, event).kind in (event.kind, SOMETIMES)
    kinds = Counter(event.kind for event in plain.events if event.size)
    assert kinds[DATA] < kinds[OBJECT]
    # Lo que queda al acabar es de lo que queda: parámetros, estado y búferes.
    left = Counter(event.kind for event in alive.values())
    assert left[OBJECT] <= 4 * left[DATA]
    assert not left[SOMETIMES]


def test_los_nodos_de_un_micro_batch_viven_hasta_el_siguiente(plain: Trace) -> None:
    nodes = [(first, last) for first, last in lives(plain, NODE) if first.phase == FORWARD]
    assert len(nodes) > 100
    assert all(last.phase != BACKWARD for _, last in nodes)


@pytest.mark.slow
def test_los_nodos_de_lo_recalculado_mueren_en_la_pasada_hacia_atras(plain: Trace) -> None:
    blocks = trace_with("block")

    def recomputed(trace: Trace) -> list[tuple[Event, Event]]:
        return [(first, last) for first, last in lives(trace, NODE) if first.phase == BACKWARD]

    assert len(recomputed(blocks)) > 50
    assert len(recomputed(plain)) < len(recomputed(blocks))
    assert all(last.phase == BACKWARD for _, last in recomputed(blocks))


def test_los_objetos_no_son_memoria_viva(plain: Trace) -> None:
    data = [event for event in plain.events if event.kind == DATA]
    assert replay_history(plain.events, 0).live == replay_history(data, 0).live
    assert replay(plain.events) == replay(data)


def test_las_historias_son_distintas_y_cada_una_se_repite(plain: Trace) -> None:
    first = [replay_history(plain.events, seed) for seed in range(4)]
    assert first == [replay_history(plain.events, seed) for seed in range(4)]
    assert len({peaks.peak_reserved for peaks in first}) > 1
    assert replay_on_heap(plain.events) == replay_on_heap(plain.events)
