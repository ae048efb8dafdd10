"""Un valor malo da una frase en español con fichero, campo, valor y remedio; nunca otra cosa."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enlace.config.load import leaves, validate
from enlace.config.schema import Config
from enlace.errors import ConfigError
from tests.support import make_config, tiny_values

LEAVES = [key for key, _ in leaves(tiny_values())]
SECTIONS = [
    "hardware",
    "hardware.preflight",
    "model",
    "train",
    "data",
    "data.tokenizer",
    "data.evaluation",
]
WRONG: list[Any] = [None, True, "texto MALO", "", -1, -0.5, 1.5, [], [1], {}, {"a": 1}]
WRONG += [float("nan"), float("inf"), 10**400, "\ud800", ["/etc/*"], [""], 0]
ENGLISH = re.compile(
    r"input|should|valid |validation|error|field|greater|less|than|expected|type=|pydantic|"
    r"\bor\b|\band\b|\bbe\b|string|integer|boolean|NaN|None|True|False|\{|constrained|function",
    re.IGNORECASE,
)


def _message(values: dict[str, Any]) -> str | None:
    origins = dict.fromkeys((key for key, _ in leaves(values)), "f.yaml")
    try:
        validate(values, origins, "f.yaml")
    except ConfigError as error:
        return str(error)
    return None


def _check(message: str, key: str) -> None:
    assert message.startswith("f.yaml: ")
    assert key in message
    for sentence in message.split("\n        "):
        _check_sentence(sentence)


def _check_sentence(message: str) -> None:
    assert "\n" not in message
    assert message.startswith(("f.yaml: ", "… y "))
    assert "; " in message, "falta el remedio"
    # Los nombres de los campos y los valores que se citan no son prosa.
    prose = re.sub(
        r'"(?:[^"\\]|\\.)*"?|\{"a": 1\}|\{\}|[a-z_0-9]+(\.[a-z_0-9]+)+|true o false|'
        "none(?:, mlp)? o block",
        "",
        message,
    )
    prose = re.sub(r"= (?:true|false|null|\S+)", "", prose)
    assert not ENGLISH.search(prose), prose
    assert not re.search(r"\)[^;]*\([^)]*\(", message), "paréntesis dentro de paréntesis"
    message.encode("utf-8")


@pytest.mark.parametrize("key", [*LEAVES, *SECTIONS])
def test_cada_hoja_con_cada_valor_malo(key: str) -> None:
    refused = 0
    for value in WRONG:
        values = _replaced(key, value)
        message = _message(values)
        if message is not None:
            refused += 1
            _check(message, key)
    # Alguno puede ser bueno (0 para una semilla, True para compile), pero no casi todos.
    assert refused >= 10


@settings(max_examples=200, deadline=None)
@given(
    key=st.sampled_from(LEAVES),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    ),
)
def test_cualquier_valor_se_acepta_o_se_explica(key: str, value: Any) -> None:
    message = _message(_replaced(key, value))
    if message is not None:
        assert key in message
        for sentence in message.split("\n        "):
            assert "\n" not in sentence
            assert sentence.startswith(("f.yaml: ", "… y "))
            assert "; " in sentence
        message.encode("utf-8")


@pytest.mark.parametrize("key", LEAVES)
def test_cada_hoja_que_falta_se_pide(key: str) -> None:
    values = tiny_values()
    *parents, leaf = key.split(".")
    section = values
    for parent in parents:
        section = section[parent]
    del section[leaf]
    message = _message(values)
    if message is None:
        owner = Config.model_fields["model"].annotation
        assert parents == ["model"]
        assert owner is not None
        assert not owner.model_fields[leaf].is_required()
    else:
        assert message.startswith(f"f.yaml: falta la clave {key}")
        assert message.endswith("; añádela")


@pytest.mark.parametrize("section", ["", *SECTIONS])
def test_una_clave_de_mas_en_cada_seccion(section: str) -> None:
    values = tiny_values()
    inside = values
    for name in filter(None, section.split(".")):
        inside = inside[name]
    path = f"{section}.sobra" if section else "sobra"
    inside["sobra"] = 1
    message = _message(values)
    assert message is not None
    assert message.startswith(f"f.yaml: la clave {path} = 1 no existe; quítala o usa una de estas:")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"train.lr": "3e-5"},
            'train.lr = "3e-5" (tasa de aprendizaje máxima) debe ser un número; escríbelo con '
            "cifras y sin comillas",
        ),
        (
            {"train.warmup": 1.0},
            "train.warmup = 1.0 (calentamiento) debe ser un número entero de pasos o una fracción "
            "menor que 1; escribe, por ejemplo, 100 o 0.1",
        ),
        (
            {"train.schedule": "lineal"},
            'train.schedule = "lineal" (forma de la tasa de aprendizaje) no es una opción '
            "conocida; elige entre wsd o cosine",
        ),
        (
            {"train.optimizer": "sgd"},
            'train.optimizer = "sgd" (optimizador; muon es para las matrices de los bloques, y lo '
            "demás va con AdamW) no es una opción conocida; elige entre adamw o muon",
        ),
        (
            {"data.val_fraction": 0.5},
            "data.val_fraction = 0.5 (fracción de documentos para validación) debe ser menor que "
            "0.5; pon un valor menor",
        ),
        (
            {"data.include": ["../*.txt"]},
            'data.include.0 = "../*.txt" debe ser un patrón relativo, sin «..» y con «**» solo '
            "como carpeta; escríbelo como **/*.txt",
        ),
        (
            {"data.evaluation.prompts": []},
            "data.evaluation.prompts = [] (principios de texto que el modelo continúa) es una "
            "lista vacía; pon al menos un elemento",
        ),
        (
            {"model.n_kv_head": 3},
            "model.n_head = 4 no es divisible entre model.n_kv_head = 3; pon en model.n_kv_head "
            "un divisor de 4",
        ),
        (
            {"model.d_model": 36},
            "model.d_model = 36 entre model.n_head = 4 da cabezas de 9, impar, y RoPE gira pares; "
            "cambia uno de los dos",
        ),
        (
            {"train.tokens_per_step": 250},
            "train.tokens_per_step = 250 no es múltiplo de model.seq_len = 32; pon 256",
        ),
        (
            {"hardware.micro_batch": 3},
            "hardware.micro_batch = 3 no divide las 8 secuencias de cada paso "
            "(train.tokens_per_step = 256 entre model.seq_len = 32); pon un divisor de 8",
        ),
        (
            {"train.warmup": 0.5, "train.decay": 11},
            "train.warmup = 10 pasos y train.decay = 11 pasos no caben juntos en train.steps = 20; "
            "reduce train.warmup o train.decay, o alarga train.steps",
        ),
        (
            {"train.schedule": "cosine", "train.warmup": 21},
            "train.warmup = 21 pasos no cabe en train.steps = 20; reduce train.warmup o alarga "
            "train.steps",
        ),
        (
            {"data.format": "chat"},
            "data.format = chat necesita tokens de turno y data.tokenizer.kind = byte no los "
            "tiene; pon data.tokenizer.kind: bpe",
        ),
        (
            {"data.shard_tokens": 32},
            "data.shard_tokens = 32 no llega a una ventana de model.seq_len + 1 = 33 tokens; pon "
            "33 o, mejor, decenas de millones",
        ),
    ],
)
def test_la_frase_entera(changes: dict[str, Any], expected: str) -> None:
    assert _message(tiny_values(changes)) == f"f.yaml: {expected}"


def test_varios_fallos_dan_una_frase_cada_uno() -> None:
    message = _message(tiny_values({"train.lr": -1, "model.n_layer": 0, "data.workers": "dos"}))
    assert message is not None
    assert [line.split(" = ")[0].strip() for line in message.splitlines()] == [
        "f.yaml: model.n_layer",
        "f.yaml: train.lr",
        "f.yaml: data.workers",
    ]


def test_muchos_fallos_se_resumen() -> None:
    message = _message(tiny_values({"data.evaluation.prompts": [1] * 1000}))
    assert message is not None
    lines = message.splitlines()
    assert len(lines) == 9
    assert lines[-1].strip() == "… y 992 fallos más; corrige estos y vuelve a probar"


def test_un_conflicto_entre_ficheros_los_nombra_todos() -> None:
    values = tiny_values({"train.tokens_per_step": 250})
    origins = {"train.tokens_per_step": "t.yaml", "model.seq_len": "m.yaml"}
    with pytest.raises(ConfigError) as caught:
        validate(values, origins, "run.yaml")
    assert str(caught.value) == (
        "run.yaml: train.tokens_per_step = 250 no es múltiplo de model.seq_len = 32; pon 256 "
        "(valores: train.tokens_per_step, de t.yaml; model.seq_len, de m.yaml)"
    )


def test_el_remedio_de_los_tokens_por_paso_funciona() -> None:
    for tokens in (1, 33, 250, 1000):
        message = _message(tiny_values({"train.tokens_per_step": tokens}))
        assert message is not None
        fixed = int(message.rpartition("pon ")[2])
        assert make_config({"train.tokens_per_step": fixed}).accumulation >= 1


def _replaced(key: str, value: Any) -> dict[str, Any]:
    values = tiny_values()
    *parents, leaf = key.split(".")
    section = values
    for parent in parents:
        section = section[parent]
    section[leaf] = value
    return values
