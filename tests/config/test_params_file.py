"""`params.yaml`: escribir y leer da lo mismo, con los mismos bytes, también tras pasar por DVC."""

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from enlace.config.load import differences, load_config, resolve, write_params
from tests.support import make_config

RUNS = sorted(path.stem for path in (Path(__file__).parents[2] / "configs/runs").glob("*.yaml"))


@pytest.mark.parametrize("run", RUNS)
def test_ida_y_vuelta_con_los_mismos_bytes(project: Path, run: str) -> None:
    config = resolve(run, [], project)
    path = write_params(config, [], project)
    first = path.read_bytes()
    again = load_config(path)
    assert again == config
    assert again.identity() == config.identity()
    assert again.fingerprint() == config.fingerprint()
    write_params(again, [], project)
    assert path.read_bytes() == first
    assert load_config(project / f"configs/runs/{run}.yaml") == config


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lr=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    warmup=st.integers(0, 5) | st.floats(0, 0.2),
    # Seis caracteres son 24 bytes como mucho: los que deja la muestra en seq_len.
    prompts=st.lists(st.text(min_size=1, max_size=6), min_size=1),
    column=st.text(min_size=1),
)
def test_cualquier_valor_valido_hace_el_viaje(
    tmp_path: Path, lr: float, warmup: float, prompts: list[str], column: str
) -> None:
    changes: dict[str, Any] = {"train.lr": lr, "train.warmup": warmup}
    changes |= {"data.evaluation.prompts": prompts, "data.text_column": column}
    config = make_config(changes)
    again = load_config(write_params(config, [], tmp_path))
    assert again == config
    assert again.identity() == config.identity()


def test_lo_que_dvc_escribe_se_lee_igual(project: Path) -> None:
    # `dvc exp run -S train.lr=1e-5` reescribe el fichero con ruamel.yaml, que pone 1e-05.
    path = write_params(resolve("demo", [], project), [], project)
    round_trip = YAML(typ="rt")
    values = round_trip.load(path.read_text(encoding="utf-8"))
    values["train"]["lr"] = 1e-5
    text = io.StringIO()
    round_trip.dump(values, text)
    assert "lr: 1e-05" in text.getvalue()
    path.write_text(text.getvalue(), encoding="utf-8")
    assert load_config(path) == resolve("demo", ["train.lr=1e-5"], project)


def test_las_diferencias_son_exactamente_lo_que_cambia(project: Path) -> None:
    base = resolve("demo", [], project)
    config = resolve("demo", ["train.lr=1e-3", "data.evaluation.prompts=[Hola]"], project)
    assert differences(base, base) == []
    assert differences(config, base) == [
        ("train.lr", 6e-3, 1e-3),
        ("data.evaluation.prompts", list(base.data.evaluation.prompts), ["Hola"]),
    ]
