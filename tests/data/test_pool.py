"""El trabajo repartido: el mismo resultado con cualquier número de procesos, y en su orden."""

import os
from collections.abc import Callable
from contextlib import closing

import pytest

from enlace.data.preparation.pool import ordered_map
from enlace.errors import DataError


def _multiplier(factor: int) -> Callable[[int], tuple[int, int]]:
    return lambda item: (factor * item, os.getpid())


def _fussy(limit: int) -> Callable[[int], int]:
    def work(item: int) -> int:
        if item == limit:
            raise DataError(f"el {item} no")
        return item

    return work


def test_dos_procesos_dan_lo_mismo_que_ninguno_y_en_orden() -> None:
    alone = list(ordered_map(_multiplier, 3, range(40), 1, "prueba"))
    shared = list(ordered_map(_multiplier, 3, range(40), 2, "prueba"))
    assert [value for value, _ in alone] == [value for value, _ in shared]
    assert {pid for _, pid in alone} == {os.getpid()}
    assert os.getpid() not in {pid for _, pid in shared}


def test_lo_que_falla_en_un_elemento_llega_tal_cual() -> None:
    with closing(ordered_map(_fussy, 2, range(9), 2, "prueba")) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(DataError, match=r"^el 2 no$"):
            next(results)
