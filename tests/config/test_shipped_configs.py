"""Los YAML que van en el repositorio: válidos, completos y coherentes con sus nombres."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from enlace.config.load import SECTIONS, differences, leaves, load_config, resolve
from enlace.config.schema import STANDARD_EXPORT
from enlace.config.yaml_io import read_yaml
from tests.support import tiny_values

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "configs/runs").glob("*.yaml"))
LAYERS = sorted(file for name in SECTIONS for file in (ROOT / "configs" / name).glob("*.yaml"))


def _stem(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("run", RUNS, ids=_stem)
def test_cada_run_valida_y_se_llama_como_su_fichero(run: Path) -> None:
    assert load_config(run).run_name == run.stem


@pytest.mark.parametrize("run", RUNS, ids=_stem)
def test_cada_run_empieza_por_la_pregunta_que_responde(run: Path) -> None:
    lines = run.read_text(encoding="utf-8").splitlines()
    starts = ("# Pregunta: ", "# Orden: ", "# Duración: ", "# Resultado esperado: ")
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=False))


@pytest.mark.parametrize("layer", LAYERS, ids=_stem)
def test_cada_capa_escribe_todas_sus_hojas_y_solo_las_suyas(layer: Path) -> None:
    section = layer.parent.name
    every: dict[str, Any] = {section: tiny_values()[section]}
    assert [key for key, _ in leaves(read_yaml(layer))] == [key for key, _ in leaves(every)]


@pytest.mark.parametrize("layer", LAYERS, ids=_stem)
def test_cada_capa_se_llama_como_su_fichero(layer: Path) -> None:
    assert read_yaml(layer)[layer.parent.name]["name"] == layer.stem


def test_la_exportacion_de_siempre_es_la_capa_incluida() -> None:
    layer = read_yaml(ROOT / "configs/export/standard.yaml")["export"]
    assert STANDARD_EXPORT.model_dump(mode="json") == layer


def test_los_runs_prometidos_existen() -> None:
    promised = {"demo", "smoke", "smoke-2060", "pretrain-2060", "pretrain-5090"}
    assert promised <= {run.stem for run in RUNS}


def test_params_en_git_es_su_run() -> None:
    config = load_config(ROOT / "params.yaml")
    assert differences(config, resolve(config.run_name, [], ROOT)) == []
    assert config.run_name == "demo"


def test_cargar_la_configuracion_no_importa_bibliotecas_pesadas() -> None:
    code = (
        "import sys; from enlace.config.load import load_config; import enlace.config.views;"
        "load_config('configs/runs/demo.yaml');"
        "print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
