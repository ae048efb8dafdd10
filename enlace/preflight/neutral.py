"""Completar la configuración que ve el preflight con valores que no cambian lo que mide.

El preflight no declara la tasa de aprendizaje, la semilla ni los datos: cambiarlos no debe obligar
a medir otra vez. Pero el constructor del entrenamiento pide una configuración entera. Aquí están
los valores de relleno; no son hiperparámetros, porque el preflight entrena con datos sintéticos y
tira el resultado.

La tasa de aprendizaje es fija y pequeña, y el informe la dice: el preflight juzga si la máquina y
fp16 pueden con el modelo, no si la receta converge. `train.decay` no es cero para que las cuentas
de disco incluyan el checkpoint que precede al decaimiento.
"""

from typing import Any

from enlace.config.schema import BYTE_VOCABULARY, Config

PREFLIGHT_LR = 1e-4
"""Menor que la de cualquier run incluido: con ella un modelo sano no diverge en unos pasos."""

_FILLER: dict[str, Any] = {
    "run_name": "preflight",
    "train.name": "preflight",
    "train.seed": 0,
    "train.init_from": "",
    "train.init_sha256": "",
    "train.init_state": "weights",
    "train.lr": PREFLIGHT_LR,
    "train.beta1": 0.9,
    "train.beta2": 0.95,
    "train.eps": 1e-8,
    "train.weight_decay": 0.1,
    "train.muon_momentum": 0.95,
    "train.muon_adamw_lr_ratio": 1.0,
    "train.grad_clip": 1.0,
    "train.schedule": "wsd",
    "train.warmup": 0,
    "train.decay": 0.2,
    "train.decay_shape": "linear",
    "train.final_lr_fraction": 0.0,
    "train.spike_window": 0,
    "train.spike_threshold": 10.0,
    "train.spike_min_deviation": 0.02,
    "train.max_rewinds": 1,
    "train.log_every": 1,
    "train.save_background": True,
    "train.save_retries": 0,
    "train.save_retry_seconds": 0.0,
    "train.max_failed_saves": 1,
    "train.max_hours": 0.0,
    "train.min_free_megabytes": 0.0,
    "train.on_finish": [],
    "train.on_fail": [],
    "train.hook_seconds": 1.0,
    "data.name": "preflight",
    "data.source": "data/sample",
    "data.include": ["**/*.txt"],
    "data.sources": [],
    "data.downloads": [],
    "data.format": "text",
    "data.text_column": "text",
    "data.genre_column": "",
    "data.license_column": "",
    "data.on_bad_bytes": "fail",
    "data.max_record_megabytes": 1.0,
    "data.max_document_megabytes": 1.0,
    "data.rules.html": False,
    "data.rules.mojibake": False,
    "data.rules.line_ends": False,
    "data.rules.control": False,
    "data.rules.invisible": False,
    "data.rules.nfc": False,
    "data.rules.whitespace": False,
    "data.rules.boilerplate.enabled": False,
    "data.rules.boilerplate.max_line_chars": 160,
    "data.rules.language.enabled": False,
    "data.rules.language.keep": ["es"],
    "data.rules.language.min_chars": 60,
    "data.rules.language.judged_chars": 300,
    "data.rules.language.min_probability": 0.7,
    "data.rules.language.min_cues": 2,
    "data.rules.language.min_cue_share": 0.05,
    "data.rules.language.cued_probability": 0.35,
    "data.rules.language.min_document_share": 0.5,
    "data.rules.length.enabled": True,
    "data.rules.length.min_chars": 0,
    "data.rules.length.max_chars": 50000000,
    "data.rules.length.min_words": 0,
    "data.rules.length.min_mean_word_chars": 2.0,
    "data.rules.length.max_mean_word_chars": 12.0,
    "data.rules.quality.enabled": False,
    "data.rules.quality.max_symbol_share": 0.1,
    "data.rules.quality.max_bullet_line_share": 0.9,
    "data.rules.quality.max_ellipsis_line_share": 0.3,
    "data.rules.quality.min_alphabetic_word_share": 0.7,
    "data.rules.quality.min_stop_words": 2,
    "data.rules.repetition.enabled": False,
    "data.rules.repetition.min_words": 100,
    "data.rules.repetition.max_duplicate_line_share": 0.3,
    "data.rules.repetition.max_duplicate_paragraph_share": 0.3,
    "data.rules.repetition.max_top_bigram_share": 0.2,
    "data.rules.repetition.max_top_trigram_share": 0.18,
    "data.rules.repetition.max_top_fourgram_share": 0.16,
    "data.rules.repetition.max_duplicate_ngram_share": 0.3,
    "data.rules.personal_data.action": "keep",
    "data.rules.personal_data.emails": True,
    "data.rules.personal_data.phones": True,
    "data.rules.personal_data.ids": True,
    "data.dedup.exact": True,
    "data.dedup.near": False,
    "data.dedup.threshold": 0.7,
    "data.dedup.split_threshold": 0.5,
    "data.dedup.contained": False,
    "data.dedup.contained_share": 0.8,
    "data.dedup.contained_sample": 32,
    "data.dedup.ngram": 5,
    "data.dedup.bands": 25,
    "data.dedup.rows": 5,
    "data.dedup.seed": 1,
    "data.contamination.action": "off",
    "data.contamination.include": [],
    "data.contamination.ngram": 13,
    "data.contamination.min_overlap": 0.5,
    "data.val_fraction": 0.1,
    "data.tokenizer.min_frequency": 2,
    "data.tokenizer.train_megabytes": 1.0,
    "data.tokenizer.fast_encoder": False,
    "data.shard_tokens": 1024,
    "data.workers": 1,
    "data.evaluation.prompts": ["…"],
    "data.evaluation.max_new_tokens": 1,
    "data.evaluation.temperature": 0.0,
    "data.evaluation.top_k": 0,
    "data.evaluation.seed": 0,
}


def complete_config(declared: dict[str, Any]) -> Config:
    """Una `Config` entera a partir de las hojas declaradas {"train.steps": 300, …}."""
    is_bytes = declared["model.vocab_size"] == BYTE_VOCABULARY
    kind = {"data.tokenizer.kind": "byte" if is_bytes else "bpe"}
    values: dict[str, Any] = {}
    for dotted, value in (_FILLER | kind | declared).items():
        *parents, leaf = dotted.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = value
    return Config.model_validate(values)
