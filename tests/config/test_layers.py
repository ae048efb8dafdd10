"""Capas, mezcla, overrides y cambios: quién manda y qué se rechaza, con su frase."""

import re
from pathlib import Path
from typing import Any

import pytest

from enlace.config.load import load_config, load_values, resolve, run_path, write_params
from enlace.config.yaml_io import dump_yaml, read_yaml
from enlace.errors import ConfigError


def _edit(path: Path, changes: dict[str, Any]) -> None:
    """Aplica {"train.lr": 1} al YAML de `path`; None como valor escribe null."""
    values = read_yaml(path)
    for dotted, value in changes.items():
        *parents, leaf = dotted.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = value
    path.write_text(dump_yaml(values), encoding="utf-8")


def _fails(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return str(caught.value)


@pytest.fixture
def run(project: Path) -> Path:
    return project / "configs/runs/demo.yaml"


# ---------------------------------------------------------------- precedencia


def test_manda_la_capa_luego_el_run_luego_set(project: Path, run: Path) -> None:
    assert load_config(run).train.lr == 6e-3
    _edit(run, {"overrides": {"train": {"lr": 2e-3}, "data": {"tokenizer": {"min_frequency": 5}}}})
    config = load_config(run)
    assert (config.train.lr, config.data.tokenizer.min_frequency) == (2e-3, 5)
    assert config.data.tokenizer.kind == "bpe"
    assert resolve("demo", ["train.lr=1e-3"], project).train.lr == 1e-3


def test_params_editado_manda_sobre_el_run(project: Path) -> None:
    write_params(resolve("demo", ["train.lr=1e-3"], project), [], project)
    _edit(project / "params.yaml", {"train.lr": 5e-4})
    assert load_config(project / "params.yaml").train.lr == 5e-4


def test_cada_hoja_sabe_de_que_fichero_sale(project: Path, run: Path) -> None:
    _edit(run, {"overrides": {"train": {"lr": 2e-3}}})
    _, origins = load_values(run)
    assert origins["train.lr"] == str(run)
    assert origins["train.steps"] == str(project / "configs/train/demo.yaml")
    assert origins["data.tokenizer.kind"] == str(project / "configs/data/demo.yaml")


def test_los_overrides_aceptan_claves_con_puntos(run: Path) -> None:
    _edit(run, {"overrides": {"train.lr": 2e-3}})
    assert load_config(run).train.lr == 2e-3


def test_set_cambia_una_capa_y_conserva_los_overrides(project: Path, run: Path) -> None:
    _edit(run, {"overrides": {"train": {"seed": 9}}})
    config = resolve("demo", ["train=smoke", "train.keep_last=7"], project)
    assert (config.train.name, config.train.seed, config.train.keep_last) == ("smoke", 9, 7)


def test_el_ultimo_set_manda_y_los_valores_son_yaml(project: Path) -> None:
    settings = ["train.lr=1", "train.lr=3e-4", "data.evaluation.prompts=[No, 'a, b']"]
    config = resolve("demo", settings, project)
    assert config.train.lr == 3e-4
    assert config.data.evaluation.prompts == ("No", "a, b")


# ---------------------------------------------------------------- errores de los runs


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"modle": "demo"}, 'runs/demo.yaml: la clave modle = "demo" no existe en un run; usa'),
        ({"model": "no-existe"}, 'la capa model = "no-existe" no existe; elige en '),
        ({"model": "../data/demo"}, 'la capa model = "../data/demo" no existe; elige en '),
        ({"model": "x" * 400}, "no existe; elige en "),
        ({"model": None}, "la capa model = null no existe; elige en "),
        ({"model": 3}, "la capa model = 3 no existe; elige en "),
        ({"model": ["demo"]}, 'la capa model = ["demo"] no existe; elige en '),
        ({"model": {"n_layer": 2}}, "model lleva valores y en un run va el nombre de una capa"),
        ({"overrides": 0}, "overrides = 0 debe ser un mapa; escribe secciones y claves"),
        ({"overrides": []}, "overrides = [] debe ser un mapa"),
        ({"overrides": {"train": {"rl": 1}}}, "la clave train.rl = 1 no existe; ¿querías decir"),
        ({"overrides": {"zzz": 1}}, "la clave zzz = 1 no existe; mira en params.yaml"),
        ({"overrides": {"train": None}}, "train = null es una sección; escribe sus claves"),
        (
            {"overrides": {"train": {"lr": 1.0}, "train.lr": 2.0}},
            "overrides repite la clave train.lr = 2.0; deja solo una",
        ),
        ({"overrides": {"train": {"lr": None}}}, "train.lr = null (tasa de aprendizaje máxima)"),
    ],
)
def test_un_run_malo_dice_que_falla(run: Path, changes: dict[str, Any], expected: str) -> None:
    _edit(run, changes)
    message = _fails(run)
    assert expected in message
    assert message.startswith(str(run))
    assert "\n" not in message


@pytest.mark.parametrize("key", ["run_name", "hardware", "model", "train", "data"])
def test_a_un_run_le_falta_una_clave(run: Path, key: str) -> None:
    values = read_yaml(run)
    del values[key]
    run.write_text(dump_yaml(values))
    assert _fails(run) == f"{run}: falta la clave {key}; un run la necesita"


def test_una_clave_en_dos_capas_nombra_los_dos_ficheros(project: Path, run: Path) -> None:
    _edit(project / "configs/hardware/cpu.yaml", {"train.lr": 1e-3})
    assert _fails(run) == (
        f"{project}/configs/train/demo.yaml: la clave train.lr = 0.006 ya la pone "
        f"{project}/configs/hardware/cpu.yaml; déjala en una sola capa (para cambiarla en un run, "
        "usa overrides)"
    )


@pytest.mark.parametrize("value", [None, 5, []])
def test_una_capa_que_pisa_otra_seccion_entera_choca(
    project: Path, run: Path, value: object
) -> None:
    _edit(project / "configs/hardware/cpu.yaml", {"model": value})
    assert "ya la pone" in _fails(run)


def test_una_capa_no_pone_claves_de_otra_seccion(project: Path, run: Path) -> None:
    values = read_yaml(project / "configs/train/demo.yaml")
    del values["train"]["lr"]
    (project / "configs/train/demo.yaml").write_text(dump_yaml(values))
    _edit(project / "configs/hardware/cpu.yaml", {"train.lr": 1e-3})
    assert _fails(run) == (
        f"{project}/configs/hardware/cpu.yaml: la clave train.lr = 0.001 no es de hardware; pásala "
        "a la capa de train o a los overrides del run"
    )


def test_lo_que_falta_en_una_capa_se_dice_de_la_capa(project: Path, run: Path) -> None:
    layer = project / "configs/data/demo.yaml"
    values = read_yaml(layer)
    del values["data"]["tokenizer"]["kind"]
    layer.write_text(dump_yaml(values))
    _edit(run, {"overrides": {"data": {"text_column": "t"}}})
    assert _fails(run) == (
        f"{layer}: falta la clave data.tokenizer.kind (bytes sin tokenizador, o BPE por bytes); "
        "añádela"
    )


@pytest.mark.parametrize("content", ["", "model:\n", "model: 7\n"])
def test_una_capa_vacia_se_explica(project: Path, run: Path, content: str) -> None:
    (project / "configs/model/demo.yaml").write_text(content)
    message = _fails(run)
    assert message.startswith(f"{project}/configs/model/demo.yaml: ")
    assert "mapa de claves y valores" in message


# ---------------------------------------------------------------- params.yaml


def test_una_capa_dentro_de_params_trae_su_remedio(project: Path) -> None:
    params = project / "params.yaml"
    _edit(params, {"model": "tiny-50m"})
    assert _fails(params) == (
        f'{params}: model = "tiny-50m" es el nombre de una capa y aquí van sus valores; escríbelos '
        'con `make params RUN=demo SET="model=tiny-50m"`'
    )


def test_params_con_claves_de_mas_o_con_puntos(project: Path) -> None:
    params = project / "params.yaml"
    original = params.read_text(encoding="utf-8")
    for line, expected in [
        ("train.lr: 1\n", "la clave train.lr = 1 no existe; escribe lr dentro de su sección"),
        ("tarin: 1\n", "la clave tarin = 1 no existe; ¿querías decir train?"),
        ("zzz: {a: 1}\n", 'la clave zzz = {"a": 1} no existe; quítala o usa una de estas: run_'),
    ]:
        params.write_text(original + line, encoding="utf-8")
        message = _fails(params)
        assert message.startswith(f"{params}: {expected}")


@pytest.mark.parametrize("value", [None, 5, [], "", True])
def test_una_seccion_que_no_es_un_mapa(project: Path, value: object) -> None:
    params = project / "params.yaml"
    _edit(params, {"train": value})
    message = _fails(params)
    assert message.startswith(f"{params}: train = ")
    assert "\n" not in message


# ---------------------------------------------------------------- make params


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("nada", [], 'el run "nada" no existe; elige en '),
        ("../runs/demo", [], 'el run "../runs/demo" no existe; elige en '),
        ("x" * 400, [], "no existe; elige en "),
        ("demo", ["lr"], "SET: «lr» no tiene la forma clave=valor; prueba train.lr=3e-4"),
        ("demo", ["=3"], "SET: «=3» no tiene la forma clave=valor"),
        ("demo", ["train.rl=3"], "SET: la clave train.rl = 3 no existe; ¿querías decir train."),
        ("demo", ["data.k=3"], "SET: la clave data.k = 3 no existe; mira en params.yaml las que"),
        ("demo", ["data.worker=3"], "no existe; ¿querías decir data.workers?"),
        ("demo", ["train..lr=3"], "SET: la clave train..lr = 3 no existe"),
        ("demo", ["train.lr="], "SET: train.lr = null (tasa de aprendizaje máxima) debe ser"),
        ("demo", ["train.lr=[1"], "SET train.lr, línea 1: «[1» no es YAML válido"),
        ("demo", ["train.lr=rápido"], 'SET: train.lr = "rápido" (tasa de aprendizaje máxima)'),
        ("demo", ["model=nada"], 'la capa model = "nada" no existe; elige en '),
        ("demo", ["run_name=otro"], 'SET: run_name = "otro" y el fichero se llama demo.yaml'),
    ],
)
def test_resolve_explica_lo_que_no_puede(
    project: Path, name: str, settings: list[str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        resolve(name, settings, project)


def test_un_run_copiado_sin_cambiar_el_nombre_se_rechaza(project: Path, run: Path) -> None:
    (run.parent / "mio.yaml").write_text(run.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"pon run_name: mio o cambia el nombre del fichero"):
        resolve("mio", [], project)


def test_fuera_del_proyecto_se_dice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="¿estás en la raíz del proyecto"):
        run_path("demo", tmp_path)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ([], "make params RUN=demo`"),
        (
            ["train.lr=3e-4", "train.seed=3"],
            'make params RUN=demo SET="train.lr=3e-4 train.seed=3"',
        ),
        (['data.text_column="a"'], "SET='data.text_column=\"a\"'"),
        (["data.evaluation.prompts=['a\nrun_name: otro']"], "a\\\\nrun_name: otro"),
    ],
)
def test_la_cabecera_de_params_repite_la_orden_y_no_rompe_el_yaml(
    project: Path, settings: list[str], shown: str
) -> None:
    config = resolve("demo", settings, project)
    path = write_params(config, settings, project)
    assert shown.replace("\\\\", "\\") in path.read_text(encoding="utf-8")
    assert load_config(path) == config


@pytest.mark.parametrize("value", ["rtx9999", "{name: cpu}"])
def test_una_capa_mala_de_set_no_se_achaca_al_run(project: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"^SET: ") as refused:
        resolve("demo", [f"hardware={value}"], project)
    assert "configs/runs" not in str(refused.value)
