"""Identidad y huella: qué valores son el mismo entrenamiento y cuáles son otro."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enlace.config.load import leaves, load_config, resolve, write_params
from enlace.config.schema import Config
from tests.support import make_config, tiny_values

OPERATIONAL = {
    "run_name",
    "hardware.name",
    "hardware.device",
    "hardware.sdpa_backend",
    "hardware.micro_batch",
    "hardware.compile",
    "hardware.loss_chunk_rows",
    "hardware.loss_chunk_columns",
    "hardware.threads",
    "hardware.host_allocator",
    "hardware.memory_gib",
    "hardware.memory_margin",
    "hardware.activation_checkpointing",
    "hardware.preflight.steps",
    "hardware.preflight.health_steps",
    "hardware.preflight.min_window_bits",
    "hardware.preflight.warn_activation_bits",
    "hardware.preflight.min_activation_bits",
    "hardware.preflight.warn_skip_rate",
    "hardware.preflight.max_skip_rate",
    "hardware.preflight.warn_scale",
    "hardware.preflight.max_loss_difference",
    "hardware.preflight.min_gradient_cosine",
    "hardware.preflight.kwh_price",
    "model.name",
    "train.name",
    "train.init_from",
    "train.log_every",
    "train.eval_every",
    "train.eval_tokens",
    "train.save_every",
    "train.keep_last",
    "train.keep_every",
    "train.save_background",
    "train.save_retries",
    "train.save_retry_seconds",
    "train.max_failed_saves",
    "train.spike_window",
    "train.spike_threshold",
    "train.spike_min_deviation",
    "train.max_spikes",
    "train.rewind",
    "train.max_rewinds",
    "train.rewind_skip",
    "train.max_hours",
    "train.min_free_megabytes",
    "train.on_finish",
    "train.on_fail",
    "train.hook_seconds",
    "data.name",
    "data.downloads",
    "data.workers",
    "data.tokenizer.fast_encoder",
    "data.evaluation.prompts",
    "data.evaluation.max_new_tokens",
    "data.evaluation.temperature",
    "data.evaluation.top_k",
    "data.evaluation.seed",
    "export.name",
    "export.gguf",
    "export.license",
    "export.temperature",
    "export.top_k",
    "export.top_p",
    "export.min_p",
    "export.repeat_penalty",
}
"""La lista escrita de lo que puede cambiar sin ser otro entrenamiento; el resto es identidad."""

# Las hojas cuyo cambio suelto no valida llevan su acompañante: se comparan dos bases distintas.
MUON = {"train.optimizer": "muon"}
BPE = {"data.tokenizer.kind": "bpe", "model.vocab_size": 300}
_SOURCE = {"name": "wiki", "include": ["wiki/*"], "weight": 2.0, "license": "CC BY-SA 4.0"}
_DOWNLOAD = {
    "name": "wiki",
    "dataset": "ejemplo/wiki",
    "subset": "",
    "split": "train",
    "revision": "v1",
    "text_column": "text",
    "license": "CC BY-SA 4.0",
    "max_megabytes": 10.0,
}
OTHER: dict[str, tuple[dict[str, Any], Any]] = {
    "hardware.device": ({}, "cuda"),
    "hardware.dtype": ({}, "bf16"),
    "hardware.sdpa_backend": ({}, "math"),
    "hardware.micro_batch": ({}, 4),
    "hardware.activation_checkpointing": ({}, "mlp"),
    "hardware.memory_margin": ({}, 0.2),
    "hardware.preflight.min_gradient_cosine": ({}, 0.99),
    "hardware.preflight.warn_skip_rate": ({}, 0.001),
    "model.vocab_size": (BPE, 301),
    "model.n_head": ({"model.n_kv_head": 1}, 2),
    "hardware.host_allocator": ({}, "keep"),
    "model.n_kv_head": ({}, 1),
    "model.d_model": ({}, 64),
    "model.seq_len": ({}, 64),
    "train.init_sha256": ({"train.init_from": "padre"}, "a" * 64),
    "train.init_state": ({"train.init_from": "padre", "train.init_sha256": "a" * 64}, "all"),
    "train.tokens_per_step": ({}, 512),
    "train.optimizer": ({}, "muon"),
    "train.muon_momentum": (MUON, 0.9),
    "train.muon_steps": (MUON, 6),
    "train.muon_adamw_lr_ratio": (MUON, 0.5),
    "train.schedule": ({}, "cosine"),
    "train.decay_shape": ({}, "sqrt"),
    "train.on_finish": ({}, ["true"]),
    "train.on_fail": ({}, ["true"]),
    "data.source": ({}, "data/raw"),
    "data.format": (BPE, "chat"),
    "data.on_bad_bytes": ({}, "fail"),
    "data.document_mask": ({}, "block"),
    "data.tokenizer.kind": ({}, None),
    "data.include": ({}, ["*.txt"]),
    "data.evaluation.prompts": ({}, ["Otra cosa"]),
    "data.sources": ({}, [_SOURCE]),
    "data.downloads": ({}, [_DOWNLOAD]),
    "data.rules.language.keep": ({}, ["es", "gl"]),
    "data.rules.personal_data.action": ({}, "mask"),
    "data.contamination.action": ({}, "remove"),
    "data.contamination.include": ({}, ["evaluacion/*.txt"]),
    "export.gguf": ({}, ["q8_0"]),
    "export.license": ({}, "cc0-1.0"),
}
LEAVES = [key for key, _ in leaves(tiny_values())]


def _changed(key: str) -> tuple[Config, Config] | None:
    values = dict(leaves(tiny_values()))
    company, other = OTHER.get(key, ({}, _perturbed(values[key])))
    if other is None:
        return None
    return make_config(company), make_config(company | {key: other})


def _perturbed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value * 0.5 + 0.013 if isinstance(value, float) else f"{value}-x"


@pytest.mark.parametrize("key", LEAVES)
def test_cada_hoja_cambia_la_identidad_o_solo_la_huella(key: str) -> None:
    pair = _changed(key)
    if pair is None:
        # Una sola opción, o un cambio que arrastra otro: su sitio se ve en los valores.
        assert key in {path for path, _ in leaves(make_config().identity_values())}
        return
    before, after = pair
    # Cómo se exporta no es del entrenamiento: ni siquiera consta en lo que se guarda de él.
    assert (before.fingerprint() == after.fingerprint()) == key.startswith("export.")
    assert (before.identity() == after.identity()) == (key in OPERATIONAL)


def test_la_lista_de_claves_operativas_no_nombra_nada_inexistente() -> None:
    assert set(LEAVES) >= OPERATIONAL


def test_identidad_dorada() -> None:
    # Si cambia, ningún checkpoint anterior se reanuda: solo puede moverla una decisión escrita.
    assert make_config().identity() == (
        "f744f03bfd1c6f3372c805a766ea587c3896c505761ec80022167c4a044cf9c0"
    )
    assert make_config().fingerprint() == (
        "bc10ed4a2b0c945b2263a272cbcb87f722f3ba9e05979b0a39b098b50c95f56e"
    )


@pytest.mark.parametrize(
    "text", ["3e-5", "3.0e-5", "0.00003", "3e-05", "3E-5", "0.3e-4", "30.0e-6", "+3e-5"]
)
def test_un_numero_escrito_de_cualquier_manera_es_una_identidad(project: Path, text: str) -> None:
    expected = resolve("demo", ["train.lr=3.0e-05"], project).identity()
    assert resolve("demo", [f"train.lr={text}"], project).identity() == expected
    path = write_params(resolve("demo", [], project), [], project)
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace("lr: 0.006", f"lr: {text}"), encoding="utf-8")
    assert load_config(path).identity() == expected


def test_un_entero_en_un_campo_real_es_el_mismo_numero() -> None:
    for key in ("train.grad_clip", "model.rope_theta", "model.ffn_mult", "hardware.memory_gib"):
        whole, real = make_config({key: 4}), make_config({key: 4.0})
        assert whole.identity() == real.identity()
        assert whole.fingerprint() == real.fingerprint()


def test_menos_cero_es_cero() -> None:
    for key in ("train.weight_decay", "model.dropout", "model.z_loss_weight", "train.warmup"):
        assert make_config({key: -0.0}).fingerprint() == make_config({key: 0.0}).fingerprint()


def test_la_fraccion_y_sus_pasos_son_la_misma_receta() -> None:
    fraction = make_config({"train.steps": 300, "train.warmup": 0.1, "train.decay": 0.2})
    steps = make_config({"train.steps": 300, "train.warmup": 30, "train.decay": 60})
    assert fraction.identity() == steps.identity()
    assert fraction.fingerprint() != steps.fingerprint()
    assert fraction.train.warmup_steps == 30
    other = make_config({"train.steps": 300, "train.warmup": 31, "train.decay": 60})
    assert other.identity() != steps.identity()


def test_con_coseno_el_decaimiento_escrito_no_cuenta() -> None:
    short = make_config({"train.schedule": "cosine", "train.decay": 3})
    long = make_config({"train.schedule": "cosine", "train.decay": 0.9})
    assert short.identity() == long.identity()
    assert short.train.decay_steps == 18


def test_con_adamw_lo_de_muon_no_cuenta() -> None:
    other = make_config(
        {"train.muon_momentum": 0.5, "train.muon_steps": 2, "train.muon_adamw_lr_ratio": 0.1}
    )
    assert other.identity() == make_config().identity()
    assert other.fingerprint() != make_config().fingerprint()


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_la_identidad_distingue_dos_reales_vecinos(value: float) -> None:
    other = math.nextafter(value, math.inf)
    if math.isinf(other):
        return
    assert (
        make_config({"train.lr": value}).identity() != make_config({"train.lr": other}).identity()
    )


def test_el_hardware_no_cambia_la_identidad_salvo_dtype() -> None:
    cpu = make_config()
    gpu: dict[str, Any] = {"hardware.device": "cuda", "hardware.sdpa_backend": "cudnn"}
    gpu |= {"hardware.micro_batch": 8, "hardware.compile": True, "hardware.loss_chunk_rows": 512}
    assert make_config(gpu).identity() == cpu.identity()
    assert make_config(gpu | {"hardware.dtype": "fp16"}).identity() != cpu.identity()


def test_la_configuracion_es_inmutable() -> None:
    config = make_config()
    with pytest.raises(ValueError, match="frozen"):
        config.train.lr = 1.0
    assert isinstance(config.data.include, tuple)


def test_la_licencia_de_una_fuente_no_cambia_la_identidad() -> None:
    one = make_config({"data.sources": [_SOURCE]})
    other = make_config({"data.sources": [{**_SOURCE, "license": "dominio público"}]})
    heavier = make_config({"data.sources": [{**_SOURCE, "weight": 3.0}]})
    assert one.identity() == other.identity() != heavier.identity()
    assert one.fingerprint() != other.fingerprint()
