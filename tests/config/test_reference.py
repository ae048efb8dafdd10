"""`docs/configuration.md` sale del esquema: ni se queda vieja ni se inventa reglas."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from enlace.config.load import leaves
from enlace.config.reference import RULES, keys, render
from enlace.config.schema import Config
from tests.support import make_config, tiny_values

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

_MASKED = {"hardware.device": "cuda", "data.document_mask": "block"}
COUNTEREXAMPLES: dict[str, list[dict[str, Any]]] = {
    "es divisible entre `model.n_head`": [{"model.d_model": 34}, {"model.d_model": 36}],
    "es divisible entre `model.n_kv_head`": [{"model.n_kv_head": 3}],
    "es múltiplo de `model.seq_len`": [{"train.tokens_per_step": 250}],
    "divide las secuencias de cada paso": [{"hardware.micro_batch": 3}],
    "caben juntos en `train.steps`": [{"train.warmup": 0.5, "train.decay": 11}],
    "cabe una ventana": [{"data.shard_tokens": 32}],
    "deja sitio en `model.seq_len`": [
        {"data.evaluation.max_new_tokens": 32},
        {"data.evaluation.prompts": ["x" * 25]},
        {"data.tokenizer.kind": "bpe", "model.vocab_size": 300}
        | {"data.evaluation.max_new_tokens": 32},
    ],
    "valores de firma": [{"data.dedup.bands": 7}],
    "no es menor que `train.fp16_min_scale`": [{"train.fp16_init_scale": 0.5}],
    "no pasa de la mitad de `train.spike_window`": [{"train.max_spikes": 5}],
    "Con `hardware.device: cpu`": [{"hardware.sdpa_backend": "mem_efficient"}],
    "`hardware.preflight.min_activation_bits`": [{"hardware.preflight.warn_activation_bits": 0.5}],
    "`hardware.preflight.max_skip_rate`": [{"hardware.preflight.warn_skip_rate": 0.02}],
    "Con `hardware.device: cuda`": [
        {**_MASKED, "hardware.sdpa_backend": kernel} for kernel in ("flash", "cudnn", "math")
    ],
    "Con `data.tokenizer.kind: byte`": [{"model.vocab_size": 300}, {"data.format": "chat"}],
    "Con `data.tokenizer.kind: bpe`": [
        {"data.tokenizer.kind": "bpe", "model.vocab_size": 272},
        {"data.tokenizer.kind": "bpe", "model.vocab_size": 65537},
    ],
}
"""Un trozo de cada regla, y valores que la rompen."""


def test_la_pagina_en_git_es_la_generada() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "el esquema ha cambiado: python -m enlace.config.reference > docs/configuration.md"
    )


def test_la_pagina_nombra_todas_las_claves_y_ninguna_mas() -> None:
    assert [key.path for key in keys(Config)] == [path for path, _ in leaves(tiny_values())]


def test_operativa_e_identidad_dicen_lo_que_hace_la_identidad() -> None:
    identity = {path for path, _ in leaves(make_config().identity_values())}
    assert {key.path for key in keys(Config) if not key.operational} == identity


def test_cada_regla_tiene_contraejemplo() -> None:
    matched = [[rule for rule in RULES if piece in rule] for piece in COUNTEREXAMPLES]
    assert [len(rules) for rules in matched] == [1] * len(RULES)
    assert {rules[0] for rules in matched} == set(RULES)


@pytest.mark.parametrize(
    "changes", [changes for cases in COUNTEREXAMPLES.values() for changes in cases], ids=str
)
def test_un_contraejemplo_se_rechaza(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate(tiny_values(changes))


def test_los_limites_del_vocabulario_bpe_se_aceptan() -> None:
    for size in (273, 65536):
        config = make_config({"data.tokenizer.kind": "bpe", "model.vocab_size": size})
        assert config.model.vocab_size == size
