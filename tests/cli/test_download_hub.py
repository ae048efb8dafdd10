"""La descarga por HTTP, con las bibliotecas de verdad y un Hub de mentira en esta máquina."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .fake_hub import BRANCH, COMMIT, REPO, serve
from .support_hub import write_hub

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]


def _run(root: Path, endpoint: str, *entries: dict[str, Any]) -> list[str]:
    root.mkdir(exist_ok=True)
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.fake_hub", *map(json.dumps, entries)],
        cwd=root,
        env=keep
        | {"PYTHONPATH": str(PROJECT), "HOME": str(root / "casa"), "HF_ENDPOINT": endpoint}
        | {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def test_por_http_llegan_los_mismos_bytes(tmp_path: Path) -> None:
    folder = write_hub(tmp_path / "conjunto")
    with serve(folder) as (endpoint, asked):
        entry = {"dataset": REPO, "revision": BRANCH}
        lines = {"dataset": REPO, "revision": COMMIT, "subset": "spa_Lines", "name": "lineas"}
        assert _run(tmp_path / "remoto", endpoint, entry, lines) == ["bien", "bien"]
    assert _run(tmp_path / "local", endpoint, {"dataset": str(folder)}) == ["bien"]
    remote = tmp_path / "remoto/data/raw/web"
    assert _parts(remote) == _parts(tmp_path / "local/data/raw/web")
    assert _parts(remote) == _parts(tmp_path / "remoto/data/raw/lineas")
    manifest = json.loads((remote / ".download.json").read_text())
    assert (manifest["commit"], manifest["request"]["revision"]) == (COMMIT, BRANCH)
    files = [line for line in asked if ".parquet" in line and line.startswith("GET")]
    assert files
    assert all(f"/resolve/{COMMIT}/" in line and "bytes=" in line for line in files)


def test_las_demas_columnas_no_viajan(tmp_path: Path) -> None:
    folder = write_hub(tmp_path / "conjunto")
    with serve(folder) as (endpoint, asked):
        assert _run(tmp_path / "remoto", endpoint, {"dataset": REPO, "split": "wide"}) == ["bien"]
    ranges = [re.search(r"parquet bytes=(\d+)-(\d+)", line) for line in asked]
    travelled = sum(int(found[2]) - int(found[1]) + 1 for found in ranges if found)
    (file,) = (folder / "data/spa_Latn/wide").iterdir()
    # El pie del fichero (que pyarrow pide en trozos de 64 kB) y las columnas de texto.
    assert 0 < travelled < 80_000 < file.stat().st_size / 9


def test_cada_negativa_del_hub_se_entiende(tmp_path: Path) -> None:
    with serve(write_hub(tmp_path / "conjunto")) as (endpoint, _):
        said = _run(
            tmp_path / "proyecto",
            endpoint,
            {"dataset": "prueba/restringido"},
            {"dataset": "prueba/otro"},
            {"dataset": REPO, "revision": "v9"},
            {"dataset": REPO, "subset": "spa_Lat"},
            {"dataset": "no vale/esto/tampoco"},
        )
    for line, piece in zip(
        said,
        (
            "hf auth login",
            "no existe el conjunto prueba/otro",
            "no tiene la revisión «v9»",
            "«spa_Lat» (como spa_Latn",
            "no es un nombre de conjunto válido",
        ),
        strict=True,
    ):
        assert piece in line
    assert not (tmp_path / "proyecto/data").exists()


def test_sin_red_una_linea_y_se_puede_repetir(tmp_path: Path) -> None:
    with serve(write_hub(tmp_path / "conjunto")) as (endpoint, _):
        pass  # ya nadie escucha en esa dirección
    (line,) = _run(tmp_path / "proyecto", endpoint, {"dataset": REPO})
    assert "comprueba la red y repite la orden" in line
