from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.preflight.measurement import Failure, Measurement, Outcome
from enlace.preflight.search import (
    Search,
    divisors,
    params_command,
    search_micro_batch,
    show_search,
)
from tests.preflight.support_preflight import GIB, made_up, memory
from tests.support import make_config


class _Machine:
    """Una máquina de 3,6 GiB útiles en la que cada secuencia pide `per_row`."""

    def __init__(self, per_row: int, best: int = 1 << 20, crash: bool = False) -> None:
        self.per_row, self.best, self.crash = per_row, best, crash
        self.tried: list[int] = []

    def __call__(self, config: Config) -> Outcome:
        rows = config.hardware.micro_batch
        self.tried.append(rows)
        assert config.hardware.preflight.steps == 2
        assert config.train.tokens_per_step == rows * config.accumulation * config.model.seq_len
        needed = rows * self.per_row
        if needed > 4 * GIB:
            return Failure(kind="crashed" if self.crash else "memory", detail="SIGABRT")
        speed = 100.0 * (10 + min(rows, self.best)) - max(0, rows - self.best)
        return made_up(memory=memory(needed), micro_batch=rows, tokens_per_second=speed)


def config(sequences: int) -> Config:
    return make_config({"hardware.micro_batch": 1, "train.tokens_per_step": 32 * sequences})


def found(sequences: int, machine: _Machine) -> tuple[int | None, int | None, list[int]]:
    search = search_micro_batch(config(sequences), machine)
    largest, fastest = search.largest, search.fastest
    return (
        None if largest is None else largest.micro_batch,
        None if fastest is None else fastest.micro_batch,
        machine.tried,
    )


@pytest.mark.parametrize(
    ("sequences", "per_row", "expected"),
    [
        # Dobla hasta que no cabe.
        (64, GIB // 4, (8, 8, [1, 2, 4, 8, 16])),
        # Todo cabe: acaba en el paso entero.
        (8, 1, (8, 8, [1, 2, 4, 8])),
        # Entre 6 y 12 no hay más divisores de 12; tras fallar 12 se prueba el 6.
        (12, GIB // 2, (6, 6, [1, 2, 4, 12, 6])),
        # Bisección entre los divisores de 60 que quedan entre 16 y 32.
        (60, GIB // 6, (20, 20, [1, 2, 4, 10, 20, 60, 30])),
        # Un primo: o uno o todo.
        (7, GIB, (1, 1, [1, 7])),
        # Ni uno.
        (8, 5 * GIB, (None, None, [1])),
    ],
)
def test_busca_doblando_y_por_mitades_solo_entre_divisores(
    sequences: int, per_row: int, expected: tuple[int | None, int | None, list[int]]
) -> None:
    assert found(sequences, _Machine(per_row)) == expected


def test_el_mas_rapido_no_tiene_por_que_ser_el_mayor() -> None:
    assert found(64, _Machine(GIB // 4, best=2))[:2] == (8, 2)


def test_un_abort_es_que_no_cabe() -> None:
    assert found(64, _Machine(GIB // 4, crash=True))[0] == 8


def test_lo_justo_no_cabe_en_la_busqueda() -> None:
    # 4 secuencias piden 3,8 GiB de 4: entran, pero sin el margen.
    assert found(4, _Machine(int(0.95 * GIB)))[0] == 2


def test_lo_que_no_es_memoria_acaba_la_busqueda() -> None:
    with pytest.raises(PreflightError, match="bf16 no es nativo"):
        search_micro_batch(config(8), lambda _: Failure(kind="refused", detail="bf16 no es nativo"))


def test_los_divisores_van_de_menor_a_mayor() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


def shown(search: Search, current: int) -> str:
    output = StringIO()
    show_search(search, current, lambda rows: f"orden {rows}", Console(file=output, width=100))
    return output.getvalue()


def test_la_tabla_y_la_orden_que_lo_pone() -> None:
    search = search_micro_batch(config(64), _Machine(GIB // 4, best=4))
    text = shown(search, 1)
    assert "El mayor que cabe es 8 y el más rápido, 4." in text
    assert "orden 4" in text
    # 16 secuencias llenan los 4 GiB: entran, pero sin margen.
    assert "justo" in text
    assert "Es el que ya está puesto." in shown(search, 4)
    assert "orden" not in shown(search, 4)


def test_si_el_mayor_es_el_mas_rapido_se_dice_una_vez() -> None:
    text = shown(search_micro_batch(config(4), _Machine(GIB // 8, best=4)), 1)
    assert "El mayor que cabe, 4, es también el más rápido." in text
    assert "y el más rápido" not in text


@pytest.mark.parametrize(("speed", "kept"), [(981.0, True), (979.0, False)])
def test_por_una_diferencia_que_no_se_distingue_no_se_cambia(speed: float, kept: bool) -> None:
    search = search_micro_batch(config(4), _Machine(GIB // 8))
    faster = {4: 1000.0, 2: speed}
    attempts = []
    for one in search.attempts:
        assert isinstance(one.outcome, Measurement)
        changed = {"tokens_per_second": faster.get(one.micro_batch, 1.0)}
        attempts.append(replace(one, outcome=one.outcome.model_copy(update=changed)))
    text = shown(Search(tuple(attempts)), 2)
    assert ("El que ya está puesto, 2, va un 1,9\u00a0% más lento" in text) is kept
    assert ("orden 4" in text) is not kept


def test_si_ninguno_cabe_falla_y_dice_el_remedio() -> None:
    search = search_micro_batch(config(8), _Machine(5 * GIB))
    with pytest.raises(PreflightError, match="activation_checkpointing: mlp"):
        shown(search, 1)


def test_la_orden_conserva_los_demas_cambios() -> None:
    changes = [("train.lr", "0.001"), ("hardware.micro_batch", "8")]
    command = params_command("demo", changes, 4)
    assert command == 'make params RUN=demo SET="train.lr=0.001 hardware.micro_batch=4"'
    quoted = params_command("demo", [("data.text_column", '"texto"')], 4)
    settings = 'data.text_column="texto" hardware.micro_batch=4'
    assert quoted == f"make params RUN=demo SET='{settings}'"
