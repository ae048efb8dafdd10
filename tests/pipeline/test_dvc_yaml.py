"""`dvc.yaml` frente al código: dependencias completas, rutas únicas y parámetros exactos."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from enlace import paths
from enlace.config.load import leaves, load_config
from enlace.config.schema import Config, Section
from enlace.config.views import View, declared_params, declared_values
from enlace.config.yaml_io import read_yaml
from enlace.errors import ConfigError
from enlace.pipeline import is_code, stage_module, sync_code_dependencies
from enlace.preflight.neutral import complete_config
from enlace.process import LAUNCHER
from enlace.provenance import module_closure

ROOT = Path(__file__).parents[2]
STAGES: dict[str, Any] = read_yaml(ROOT / "dvc.yaml")["stages"]


def test_el_preflight_no_esta_entre_las_dependencias_de_codigo_del_entrenamiento() -> None:
    deps = _names(STAGES["pretrain"]["deps"])
    assert [dep for dep in deps if "preflight" in dep] == [str(paths.VERDICT)]
    assert "enlace/preflight/probes.py" in _names(STAGES["preflight"]["deps"])


def _names(items: list[Any]) -> list[str]:
    return [next(iter(item)) if isinstance(item, dict) else item for item in items or []]


@pytest.mark.parametrize("name", STAGES)
def test_las_dependencias_de_codigo_son_el_cierre_de_imports(name: str) -> None:
    declared = {dep for dep in _names(STAGES[name]["deps"]) if is_code(dep)}
    closure = {str(file) for file in module_closure(stage_module(STAGES[name]["cmd"]), ROOT)}
    assert declared == closure, "ejecuta `make deps`"


@pytest.mark.parametrize("name", STAGES)
def test_cada_etapa_se_describe_y_se_ejecuta_con_exec(name: str) -> None:
    stage = STAGES[name]
    assert stage["desc"]
    # $PPID es quien lanza la etapa: exec la deja en el proceso del shell, que es hijo suyo.
    command = rf"exec env {LAUNCHER}=\$PPID (OMP_WAIT_POLICY=passive )?python -m stages\.\w+"
    assert re.fullmatch(command, stage["cmd"])
    assert stage_module(stage["cmd"]).split(".")[1] not in sys.stdlib_module_names


def test_el_orden_pone_el_preflight_antes_que_el_corpus() -> None:
    assert list(STAGES) == ["preflight", "corpus", "tokenize", "pretrain", "evaluate", "export"]
    assert _names(STAGES["pretrain"]["deps"])[0] == str(paths.VERDICT)


def test_las_rutas_de_dvc_son_las_del_codigo() -> None:
    outs = {
        name: _names(stage.get("outs", []))
        + _names(stage.get("metrics", []))
        + _names(stage.get("plots", []))
        for name, stage in STAGES.items()
    }
    reports, evaluation = paths.PRETRAIN_REPORTS, paths.EVALUATION_REPORTS
    assert outs == {
        "preflight": [
            str(paths.VERDICT),
            str(paths.PREFLIGHT_REPORT),
            str(paths.PREFLIGHT_REPORT.with_suffix(".md")),
            str(paths.PREFLIGHT_REPORT.with_suffix(".svg")),
        ],
        "corpus": [
            str(paths.CORPUS),
            *(str(paths.CORPUS_REPORT.with_suffix(suffix)) for suffix in (".json", ".md", ".html")),
        ],
        "tokenize": [str(paths.TOKENIZER), str(paths.SHARDS)],
        "pretrain": [
            str(paths.MODEL),
            str(paths.STATE),
            f"{reports}/metrics.json",
            f"{reports}/train.tsv",
        ],
        "evaluate": [
            f"{evaluation}/report.html",
            f"{evaluation}/report.md",
            f"{evaluation}/samples.md",
            f"{evaluation}/metrics.json",
        ],
        "export": [
            str(paths.EXPORTED),
            *(str(paths.EXPORT_REPORT.with_suffix(suffix)) for suffix in (".json", ".md")),
        ],
    }


def _config() -> Config:
    return load_config(ROOT / "configs/runs/demo.yaml")


@pytest.mark.parametrize("name", STAGES)
def test_cada_parametro_declarado_existe(name: str) -> None:
    known = {key for key, _ in leaves(_config().model_dump(mode="json"))}
    for declared in declared_params(name, ROOT):
        assert any(key == declared or key.startswith(f"{declared}.") for key in known), declared


@pytest.mark.parametrize("name", STAGES)
def test_la_etapa_puede_leer_exactamente_lo_que_dvc_invalida(name: str) -> None:
    config, declared = _config(), declared_params(name, ROOT)
    view = View(config, declared, name, "")
    invalidates = set(declared_values(config, declared))
    for key, _ in leaves(config.model_dump(mode="json")):
        if key in invalidates:
            assert _read(view, key) == _read(config, key)
        else:
            with pytest.raises(ConfigError, match="sin declararla"):
                _read(view, key)


def _read(view: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        view = getattr(view, part)
    return view


def test_el_entrenamiento_ve_toda_la_configuracion_y_las_demas_etapas_no() -> None:
    config = _config()
    for name in STAGES:
        view = View(config, declared_params(name, ROOT), name, "")
        if name == "pretrain":
            assert view.whole() == config
        else:
            with pytest.raises(ConfigError):
                view.whole()


def test_el_relleno_del_preflight_no_pisa_lo_declarado() -> None:
    config = _config()
    declared = declared_values(config, declared_params("preflight", ROOT))
    complete = complete_config(declared)
    for key, value in declared.items():
        assert _read(complete, key) == _as_python(value)
    assert complete.hardware == config.hardware
    assert complete.model == config.model


def _as_python(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def test_el_preflight_no_declara_lo_que_un_barrido_cambia() -> None:
    declared = set(declared_values(_config(), declared_params("preflight", ROOT)))
    assert not declared & {"train.lr", "train.seed", "train.schedule", "data.source", "run_name"}


def test_todas_las_secciones_son_secciones() -> None:
    assert all(
        isinstance(getattr(_config(), name), Section)
        for name in ("hardware", "model", "train", "data")
    )


@pytest.mark.slow
def test_poner_al_dia_las_dependencias_conserva_lo_demas(tmp_path: Path) -> None:
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    first = next(dep for dep in STAGES["corpus"]["deps"] if is_code(dep))
    (tmp_path / "dvc.yaml").write_text(text.replace(f"      - {first}\n", "", 1), encoding="utf-8")
    for package in ("enlace", "stages"):
        (tmp_path / package).symlink_to(ROOT / package)
    assert len(sync_code_dependencies(tmp_path)) == 1
    assert (tmp_path / "dvc.yaml").read_text(encoding="utf-8") == text
    assert sync_code_dependencies(tmp_path) == []
