"""Una configuración guardada por la primera versión se lee siempre, y con las mismas huellas.

Si una clave nueva rompe estas pruebas, falta en `enlace.config.later.ADDED_LATER`. El fichero no se
toca nunca: es lo que hay en los modelos ya entrenados.
"""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from enlace.config.later import ADDED_LATER, as_before, completed
from enlace.config.load import leaves
from enlace.config.schema import Config
from enlace.config.stored import stored_config
from enlace.errors import CheckpointError
from tests.support import make_config

WHERE = Path("config.json")
FIRST: dict[str, Any] = json.loads(
    Path(__file__).with_name("first_version.json").read_text(encoding="utf-8")
)

NOT_AS_BEFORE = {"hardware.loss_chunk_columns": 96, "hardware.host_allocator": "keep"}
"""Otro valor para cada clave que nació después."""


def test_la_primera_version_se_lee_y_conserva_sus_huellas() -> None:
    config = stored_config(FIRST["config"], WHERE)
    assert config.identity() == FIRST["identity"]
    assert config.fingerprint() == FIRST["fingerprint"]


def test_lo_que_falta_toma_el_valor_de_antes() -> None:
    now = dict(leaves(stored_config(FIRST["config"], WHERE).training_values()))
    before = dict(leaves(FIRST["config"]))
    assert {key: value for key, value in now.items() if key not in before} == ADDED_LATER
    assert {key: now[key] for key in before} == before


def test_completar_no_pisa_lo_que_esta_ni_toca_lo_que_recibe() -> None:
    values = make_config(NOT_AS_BEFORE).training_values()
    copy = deepcopy(values)
    assert completed(values) == values == copy
    assert as_before(values) == copy
    short = deepcopy(FIRST["config"])
    assert as_before(completed(short)) == short == FIRST["config"]


@pytest.mark.parametrize("key", ADDED_LATER)
def test_un_valor_distinto_del_de_antes_si_cambia_la_huella(key: str) -> None:
    values = completed(FIRST["config"])
    *parents, leaf = key.split(".")
    section = values
    for parent in parents:
        section = section[parent]
    section[leaf] = NOT_AS_BEFORE[key]
    assert Config.model_validate(values).fingerprint() != FIRST["fingerprint"]


@pytest.mark.parametrize("broken", [None, [], {}, {"hardware": 3}, {"hardware": {}}])
def test_lo_que_no_es_una_configuracion_se_dice(broken: Any) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json guarda una configuración que esta"):
        stored_config(broken, WHERE)


@pytest.mark.parametrize(
    "key", ["model.n_layer", "train.lr", "data.val_fraction", "hardware.dtype"]
)
def test_una_clave_que_falta_y_no_es_nueva_se_nombra(key: str) -> None:
    values = deepcopy(FIRST["config"])
    section, leaf = key.split(".")
    del values[section][leaf]
    with pytest.raises(CheckpointError, match=rf"no entiende: {section}\.{leaf}: "):
        stored_config(values, WHERE)
