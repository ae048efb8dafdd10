"""El JSON canónico y los resúmenes, de los que salen todas las huellas."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace.files import (
    canonical_json,
    sha256_file,
    sha256_json,
    write_json,
)
from tests.support_files import names_in


def test_el_json_canonico_es_uno_por_valor() -> None:
    assert canonical_json({"b": [1, 2.0], "a": "ñ"}) == '{"a":"ñ","b":[1,2.0]}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    assert canonical_json([3e-5, 0.00003, 3.0e-05]) == "[3e-05,3e-05,3e-05]"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_e_infinito_se_rechazan(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": [value]})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", value)
    assert names_in(tmp_path) == []


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_el_json_canonico_se_lee_igual_y_es_estable(value: Any) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert sha256_json(value) == hashlib.sha256(text.encode()).hexdigest()


def test_write_json_es_legible_y_conserva_el_orden(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": "ñ", "a": [1]})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert text == '{\n  "b": "ñ",\n  "a": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_sha256_de_un_fichero(tmp_path: Path, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    (tmp_path / "x").write_bytes(content)
    assert sha256_file(tmp_path / "x") == hashlib.sha256(content).hexdigest()
