"""Cuando una parte queda vacía, el error trae la orden que lo arregla, y esa orden lo arregla."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from enlace.config.schema import DataConfig
from enlace.data.duplicates.resolve import KEPT, Resolution
from enlace.data.duplicates.shingles import Hashes
from enlace.data.preparation.build import build_corpus
from enlace.data.preparation.fates import Fates, check_splits, decide_fates
from enlace.errors import DataError
from tests.data.builders import stories, write_tree
from tests.support import make_config

_COMMAND = re.compile(r'make params RUN=… SET="data\.val_fraction=([\d.]+)"')


@cache
def _data(fraction: float) -> DataConfig:
    return make_config({"data.val_fraction": fraction}).data


def _check(ids: Hashes, families: int, fraction: float) -> Fates:
    """Reparte documentos de `ids`, que forman esas familias, y comprueba las partes."""
    numbers = np.arange(len(ids))
    resolution = Resolution(np.full(len(ids), KEPT, np.uint8), numbers, numbers % families)
    data = _data(fraction)
    fates = decide_fates(ids, np.zeros(len(ids), np.int64), resolution, data)
    check_splits(fates, resolution, ids, data)
    return fates


@pytest.mark.parametrize("families", [2, 3, 6, 20])
@pytest.mark.parametrize("asked", [1e-6, 0.01, 0.1, 0.499])
def test_la_orden_del_error_reparte_los_documentos_que_hay(families: int, asked: float) -> None:
    rng = np.random.default_rng(families)
    solved = failed = 0
    for _ in range(60):
        ids = rng.integers(2**64, size=(20, 2), dtype=np.uint64)
        try:
            _check(ids, families, asked)
        except DataError as error:
            failed += 1
            command = _COMMAND.search(str(error))
            if command:
                solved += 1
                validation = _check(ids, families, float(command[1])).validation
                assert 0 < validation.sum() < len(ids)
    # Si todas caen por encima de un medio, ningún valor las reparte.
    assert not failed or solved > failed // 4


def test_sin_orden_posible_no_se_ofrece_ninguna() -> None:
    alone = np.full((1, 2), 1 << 60, np.uint64)
    beyond = np.full((2, 2), (1 << 64) - 1, np.uint64)
    for ids in (alone, beyond):
        with pytest.raises(DataError, match=r"queda vacía: \d documentos? con .*añade") as caught:
            _check(ids, len(ids), 0.01)
        assert "make params" not in str(caught.value)


def test_de_punta_a_punta_la_orden_arregla_una_carpeta_de_pocos_textos(tmp_path: Path) -> None:
    write_tree(tmp_path / "src", stories(8))
    with pytest.raises(DataError, match="la parte val queda vacía: 8 documentos") as caught:
        build_corpus(tmp_path / "src", tmp_path / "corpus", _data(1e-6))
    assert not (tmp_path / "corpus").exists()
    command = _COMMAND.search(str(caught.value))
    assert command
    report = build_corpus(tmp_path / "src", tmp_path / "corpus", _data(float(command[1])))
    assert all(part["documents"] for part in report["splits"].values())
