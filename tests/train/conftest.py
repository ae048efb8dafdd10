"""Un hilo para modelos diminutos, y un entrenamiento terminado que varias pruebas comparten."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support import make_config
from tests.train.runs import SHORT, run_training


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Más rápido, y sin depender de lo ocupada que esté la máquina.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un entrenamiento corto terminado, que las pruebas copian antes de estropear."""
    folder = tmp_path_factory.mktemp("terminado") / "run"
    run_training(folder, make_config(SHORT))
    return folder


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    """Una copia del entrenamiento terminado."""
    return Path(shutil.copytree(finished, tmp_path / "run"))
