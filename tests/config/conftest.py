"""Un proyecto de usar y tirar: copia de `configs/` y `params.yaml` en una carpeta temporal."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml")
    return tmp_path
