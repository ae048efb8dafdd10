"""El clon ya recorrido del que parten las pruebas largas de la tubería."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.support_dvc import Clone, FirstRun, bare_clone, before_training


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstRun]:
    """`git clone` y `dvc repro evaluate`, una sola vez para todas las pruebas."""
    clone = bare_clone(tmp_path_factory.mktemp("first"))
    output = clone.dvc("repro", "evaluate")
    status = clone.git("status", "--porcelain", "--untracked-files=all")
    clone.commit()
    yield FirstRun(clone, output, status)
    clone.destroy()


@pytest.fixture
def finished(first_run: FirstRun, tmp_path: Path) -> Iterator[Clone]:
    """Una copia propia de un clon terminado y guardado en git."""
    clone = first_run.clone.copy(tmp_path / "clone")
    yield clone
    clone.destroy()


@pytest.fixture
def prepared(first_run: FirstRun, tmp_path: Path) -> Iterator[Clone]:
    """Una copia propia de un clon con el preflight pasado y los shards hechos, sin entrenar."""
    clone = before_training(first_run.clone, tmp_path / "clone")
    yield clone
    clone.destroy()
