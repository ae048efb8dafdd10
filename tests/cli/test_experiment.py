"""`enlace exp`: lo que lee el experimento es exactamente la configuración resuelta."""

from pathlib import Path
from typing import Any

import pytest
from dvc.utils.hydra import apply_overrides
from hypothesis import given, settings
from hypothesis import strategies as st

from enlace.config.load import leaves, load_config, resolve
from enlace.config.yaml_io import dump_yaml, read_yaml
from enlace.workspace.experiment import override_arguments, quote

from .conftest import ROOT, Project

# Hydra y YAML no admiten caracteres de control; lo demás debe llegar intacto.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])
    | st.sampled_from("'\\\"${},=[]: #\n\t"),
    max_size=12,
)
SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)


ENTRIES = st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), SCALARS, max_size=3)


@given(value=SCALARS | st.lists(SCALARS, max_size=3) | st.lists(ENTRIES, max_size=2))
@settings(max_examples=60, deadline=None)
def test_un_valor_vuelve_igual_de_dvc(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("quote") / "params.yaml"
    path.write_text("key: 1\n", encoding="utf-8")
    apply_overrides(str(path), [f"key={quote(value)}"])
    found = read_yaml(path)["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["true", "null", "1e-05", "a, b", "[x]", "${y}", "\\", "'", "\\'", ""]
)
def test_un_texto_sigue_siendo_texto(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("key: 1\n", encoding="utf-8")
    apply_overrides(str(path), [f"key={quote(text)}"])
    assert read_yaml(path)["key"] == text


@pytest.mark.parametrize(
    "run", sorted(path.stem for path in (ROOT / "configs/runs").glob("*.yaml"))
)
def test_cada_run_se_expande_entero(tmp_path: Path, run: str) -> None:
    config = resolve(run, ["train.lr=1e-5"], ROOT)
    start = resolve("demo", [], ROOT)
    path = tmp_path / "params.yaml"
    path.write_text(dump_yaml(start.model_dump(mode="json")), encoding="utf-8")
    arguments = override_arguments(config)
    assert arguments[::2] == ["-S"] * len(list(leaves(config.model_dump(mode="json"))))
    apply_overrides(str(path), arguments[1::2])
    assert load_config(path) == config


@pytest.mark.slow
def test_el_experimento_ve_la_configuracion_y_no_toca_nada(project: Project) -> None:
    before = (project.root / "params.yaml").read_bytes()
    changes = "train.lr=1e-5 data.evaluation.prompts=[\"¿Qué, 'tal'?\", null y $]"
    done = project.apart("exp", "smoke", "--set", changes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.root / "params.yaml").read_bytes() == before
    assert project.git("status", "--porcelain") == ""
    assert not (project.root / "seen.yaml").exists()
    expected = resolve(
        "smoke",
        ["train.lr=1e-5", "data.evaluation.prompts=[\"¿Qué, 'tal'?\", null y $]"],
        project.root,
    )
    reference = project.git("for-each-ref", "--format=%(refname)", "refs/exps").split()[0]
    for name in ("params.yaml", "seen.yaml"):  # lo que apunta DVC y lo que leyó la etapa
        seen = project.root.parent / name
        seen.write_text(project.git("show", f"{reference}:{name}"), encoding="utf-8")
        assert load_config(seen) == expected


def test_un_run_que_no_existe_no_llega_a_dvc(project: Project) -> None:
    assert "nada" in project.refused("exp", "nada")
