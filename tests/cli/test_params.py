"""`enlace params` y `check-params`: params.yaml nunca pierde nada sin decirlo."""

import pytest

from enlace.config.load import load_config, resolve
from enlace.process import exclusive_lock
from enlace.workspace.params import split_settings

from .conftest import Project


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  train.lr=3e-4  ", ["train.lr=3e-4"]),
        ("train.lr=3e-4 model=tiny-50m", ["train.lr=3e-4", "model=tiny-50m"]),
        (
            'data.include=["**/*.txt", "b c"] train.steps=5',
            ['data.include=["**/*.txt", "b c"]', "train.steps=5"],
        ),
        ("sin signo", ["sin signo"]),
    ],
)
def test_las_parejas_se_separan_sin_romper_los_valores(text: str, expected: list[str]) -> None:
    assert split_settings(text) == expected


def test_escribe_el_run_con_sus_cambios_y_los_ensena(project: Project) -> None:
    text = project.ok(
        "params", "smoke", "--set", "train.lr=1e-5 data.evaluation.prompts=[Yo, Él dijo]"
    )
    settings = ["train.lr=1e-5", "data.evaluation.prompts=[Yo, Él dijo]"]
    assert load_config(project.root / "params.yaml") == resolve("smoke", settings, project.root)
    assert "train.lr: " in text
    assert "data.evaluation.prompts: " in text
    listed = project.ok("check-params")
    assert "2 diferencias" in listed
    assert listed.count("→") == 2


def test_sin_cambios_lo_dice(project: Project) -> None:
    project.ok("params", "smoke")
    assert project.ok("check-params") == "run smoke: sin diferencias\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nada"], "nada"),
        (["smoke", "--set", "train.lrr=1"], "train.lr"),
        (["smoke", "--set", "model=nada"], "elige"),
        (["smoke", "--set", "suelto"], "clave=valor"),
        (["smoke", "--set", "train.steps=-1"], "train.steps"),
    ],
)
def test_un_error_deja_params_como_estaba(
    project: Project, arguments: list[str], said: str
) -> None:
    before = (project.root / "params.yaml").read_bytes()
    assert said in project.refused("params", *arguments)
    assert (project.root / "params.yaml").read_bytes() == before


def test_ensena_los_cambios_propios_que_se_pierden(project: Project) -> None:
    project.edit("params.yaml", "lr: 0.006", "lr: 0.007")
    text = project.ok("params", "smoke")
    assert "ya no están" in text
    assert "train.lr: 0.006 → 0.007" in text


def test_keep_edits_se_niega_a_perder_cambios_del_mismo_run(project: Project) -> None:
    project.edit("params.yaml", "lr: 0.006", "lr: 0.007")
    before = (project.root / "params.yaml").read_bytes()
    assert "train.lr" in project.refused("params", "demo", "--keep-edits")
    assert (project.root / "params.yaml").read_bytes() == before
    project.ok("params", "demo", "--keep-edits", "--set", "train.lr=0.009")
    assert load_config(project.root / "params.yaml").train.lr == 0.009


def test_el_mismo_run_no_toca_el_fichero(project: Project) -> None:
    project.edit("params.yaml", "run_name: demo", "# un comentario mío\nrun_name: demo")
    before = (project.root / "params.yaml").read_bytes()
    assert "ya es el run demo" in project.ok("params", "demo", "--keep-edits")
    assert (project.root / "params.yaml").read_bytes() == before


def test_mientras_se_entrena_no_se_cambia(project: Project) -> None:
    before = (project.root / "params.yaml").read_bytes()
    folder = project.root / "runs" / f"demo-{'0' * 16}"
    with exclusive_lock(folder / "lock"):
        assert "make exp" in project.refused("params", "smoke")
        assert (project.root / "params.yaml").read_bytes() == before
        project.ok("params", "demo")  # no cambia nada: no molesta al entrenamiento
    project.ok("params", "smoke")


def test_un_params_danado_se_puede_reemplazar(project: Project) -> None:
    (project.root / "params.yaml").write_text("run_name: [", encoding="utf-8")
    project.ok("params", "demo")
    assert project.ok("check-params") == "run demo: sin diferencias\n"


def test_require_run_acepta_solo_ese_run(project: Project) -> None:
    project.ok("require-run", "demo")
    project.ok("params", "smoke")
    assert "make params RUN=demo" in project.refused("require-run", "demo")


def test_sin_params_se_puede_rehacer(project: Project) -> None:
    (project.root / "params.yaml").unlink()
    project.ok("params", "smoke")
    assert load_config(project.root / "params.yaml") == resolve("smoke", [], project.root)
