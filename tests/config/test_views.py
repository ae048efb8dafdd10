"""Una etapa lee lo que declara en `dvc.yaml` y nada más."""

import copy
import re
from pathlib import Path

import pytest

from enlace.config.load import leaves, resolve, write_params
from enlace.config.schema import STANDARD_EXPORT
from enlace.config.views import View, declared_params, declared_values, stage_view
from enlace.errors import ConfigError
from tests.support import make_config


def _view(*declared: str) -> View:
    return View(make_config(), frozenset(declared), "prueba", "")


def test_lo_declarado_se_lee_y_lo_demas_no() -> None:
    view = _view("train.lr", "data.tokenizer.kind")
    assert view.train.lr == 3e-3
    assert view.data.tokenizer.kind == "byte"
    for read, path in [
        (lambda: view.train.steps, "train.steps"),
        (lambda: view.data.tokenizer.min_frequency, "data.tokenizer.min_frequency"),
        (lambda: view.data.evaluation, "data.evaluation"),
        (lambda: view.model, "model"),
        (lambda: view.run_name, "run_name"),
        (lambda: view.identity(), "identity"),
    ]:
        expected = f"dvc.yaml: la etapa prueba lee {path} sin declararla en params; añádela"
        with pytest.raises(ConfigError) as caught:
            read()
        assert str(caught.value) == expected


def test_cada_hoja_se_lee_si_y_solo_si_esta_declarada() -> None:
    keys = [key for key, _ in leaves(make_config().model_dump(mode="json"))]
    for declared in keys:
        view = _view(declared)
        readable = []
        for key in keys:
            value = view
            try:
                for part in key.split("."):
                    value = getattr(value, part)
            except ConfigError:
                continue
            readable.append(key)
        assert readable == [declared]


def test_declarar_una_seccion_abre_todo_lo_que_cuelga() -> None:
    view = _view("data", "model")
    assert view.data.evaluation.seed == 7
    assert view.model.head_dim == 8
    with pytest.raises(ConfigError, match=r"lee train "):
        _ = view.train


def test_el_prefijo_de_un_nombre_no_es_una_seccion() -> None:
    with pytest.raises(ConfigError, match=r"lee train\.eval_tokens "):
        _ = _view("train.eval").train.eval_tokens
    with pytest.raises(ConfigError, match=r"lee train\.eps "):
        _ = _view("train.eps_extra", "train.lr").train.eps


def test_un_valor_derivado_pide_las_claves_de_las_que_sale() -> None:
    assert _view("train.warmup", "train.steps").train.warmup_steps == 2
    assert _view("train.tokens_per_step", "model.seq_len").sequences_per_step == 8
    with pytest.raises(ConfigError, match=r"lee train\.warmup "):
        _ = _view("train.steps").train.warmup_steps


def test_la_vista_no_se_modifica_y_no_rompe_los_protocolos() -> None:
    view = _view("train.lr")
    with pytest.raises(AttributeError):
        setattr(view, "train", 1)  # noqa: B010 - mypy ya rechaza la asignación
    assert not hasattr(view, "_otra")
    assert copy.copy(view).train.lr == 3e-3
    with pytest.raises(AttributeError):
        _ = view.train.no_existe


def test_la_configuracion_entera_pide_todas_las_secciones() -> None:
    every = ("run_name", "hardware", "model", "train", "data")
    # Lo de exportar no es del entrenamiento: no lo ve, valga lo que valga.
    expected = make_config().model_copy(update={"export": STANDARD_EXPORT})
    assert _view(*every).whole() == expected != make_config()
    for missing in every:
        with pytest.raises(ConfigError, match=missing):
            _view(*(set(every) - {missing}), f"{missing}.name").whole()


def test_los_valores_declarados_son_sus_hojas() -> None:
    config = make_config()
    declared = frozenset({"train.lr", "data.tokenizer", "data.include"})
    values = declared_values(config, declared)
    assert values == {
        "train.lr": 3e-3,
        "data.include": ["**/*.txt"],
        "data.tokenizer.kind": "byte",
        "data.tokenizer.min_frequency": 2,
        "data.tokenizer.train_megabytes": 10.0,
        "data.tokenizer.fast_encoder": True,
    }
    assert View(config, declared, "prueba", "").declared_values() == values
    assert declared_values(config, frozenset()) == {}


def _pipeline(project: Path, text: str) -> None:
    (project / "dvc.yaml").write_text(text, encoding="utf-8")


def test_la_vista_de_una_etapa_sale_de_dvc_yaml(project: Path) -> None:
    write_params(resolve("demo", ["train.lr=1e-3"], project), [], project)
    _pipeline(project, "stages:\n  una:\n    cmd: x\n    params:\n    - train.lr\n    - model\n")
    assert declared_params("una", project) == {"train.lr", "model"}
    view = stage_view("una", project)
    assert (view.train.lr, view.model.n_layer) == (1e-3, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stages:\n  otra:\n    cmd: x\n", "no hay ninguna etapa «una»; revisa el nombre"),
        ("stages:\n", "no hay ninguna etapa «una»"),
        ("stages: []\n", "no hay ninguna etapa «una»"),
        ("stages:\n  una:\n", "no hay ninguna etapa «una»"),
        ("stages:\n  una:\n    params: train\n", "los params de una deben ser una lista de claves"),
        ("stages:\n  una:\n    params:\n    - p.yaml: [a]\n", "los params de una deben ser una"),
        (
            "stages:\n  una:\n    params: [train.rl]\n",
            "dvc.yaml: la etapa una declara train.rl, que no existe; quítala o usa una de ",
        ),
        ("stages:\n  una:\n    params: [model.lr.x]\n", "declara model.lr.x, que no existe"),
    ],
)
def test_un_dvc_yaml_malo_se_explica(project: Path, text: str, expected: str) -> None:
    _pipeline(project, text)
    with pytest.raises(ConfigError, match=re.escape(expected)):
        stage_view("una", project)
