"""Apoyo de las pruebas: una configuración diminuta y válida, con cambios por clave."""

from typing import Any

from enlace.config.schema import Config

_TINY: dict[str, Any] = {
    "run_name": "prueba",
    "hardware": {
        "name": "cpu",
        "device": "cpu",
        "dtype": "fp32",
        "sdpa_backend": "flash",
        "micro_batch": 2,
        "compile": False,
        "activation_checkpointing": "none",
        "loss_chunk_rows": 64,
        "loss_chunk_columns": 96,
        "threads": 0,
        "host_allocator": "system",
        "memory_gib": 4.0,
        "memory_margin": 0.1,
        "preflight": {
            "steps": 2,
            "health_steps": 4,
            "min_window_bits": 4.0,
            "warn_activation_bits": 4.0,
            "min_activation_bits": 1.0,
            "warn_skip_rate": 0.002,
            "max_skip_rate": 0.01,
            "warn_scale": 1024.0,
            "max_loss_difference": 1e-3,
            "min_gradient_cosine": 0.999,
            "kwh_price": 0.0,
        },
    },
    "model": {
        "name": "diminuto",
        "vocab_size": 256,
        "n_layer": 2,
        "n_head": 4,
        "n_kv_head": 2,
        "d_model": 32,
        "seq_len": 32,
        "ffn_mult": 8 / 3,
        "ffn_multiple_of": 16,
        "rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "tie_embeddings": True,
        "qk_norm": True,
        "z_loss_weight": 1e-4,
        "dropout": 0.0,
        "init_std": 0.02,
    },
    "train": {
        "name": "prueba",
        "seed": 7,
        "init_from": "",
        "init_sha256": "",
        "init_state": "weights",
        "steps": 20,
        "tokens_per_step": 256,
        "optimizer": "adamw",
        "lr": 3e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.1,
        "muon_momentum": 0.95,
        "muon_steps": 5,
        "muon_adamw_lr_ratio": 1.0,
        "grad_clip": 1.0,
        "schedule": "wsd",
        "warmup": 2,
        "decay": 4,
        "decay_shape": "linear",
        "final_lr_fraction": 0.0,
        "fp16_init_scale": 1024.0,
        "fp16_growth_interval": 5,
        "fp16_min_scale": 1.0,
        "fp16_max_skips": 5,
        "spike_window": 8,
        "spike_threshold": 20.0,
        "spike_min_deviation": 0.02,
        "max_spikes": 2,
        "rewind": False,
        "max_rewinds": 2,
        "rewind_skip": 1,
        "log_every": 1,
        "eval_every": 10,
        "eval_tokens": 512,
        "save_every": 5,
        "keep_last": 2,
        "keep_every": 0,
        "save_background": True,
        "save_retries": 1,
        "save_retry_seconds": 0.0,
        "max_failed_saves": 2,
        "max_hours": 0.0,
        "min_free_megabytes": 0.0,
        "on_finish": [],
        "on_fail": [],
        "hook_seconds": 10.0,
    },
    "data": {
        "name": "prueba",
        "source": "data/sample",
        "include": ["**/*.txt"],
        "sources": [],
        "downloads": [],
        "format": "text",
        "text_column": "text",
        "genre_column": "",
        "license_column": "",
        "on_bad_bytes": "skip",
        "max_record_megabytes": 1.0,
        "max_document_megabytes": 1.0,
        "rules": {
            "html": False,
            "mojibake": False,
            "line_ends": False,
            "control": False,
            "invisible": False,
            "nfc": False,
            "whitespace": False,
            "boilerplate": {"enabled": False, "max_line_chars": 160},
            "language": {
                "enabled": False,
                "keep": ["es"],
                "min_chars": 60,
                "judged_chars": 300,
                "min_probability": 0.7,
                "min_cues": 2,
                "min_cue_share": 0.05,
                "cued_probability": 0.35,
                "min_document_share": 0.5,
            },
            "length": {
                "enabled": True,
                "min_chars": 0,
                "max_chars": 50000000,
                "min_words": 0,
                "min_mean_word_chars": 2.0,
                "max_mean_word_chars": 12.0,
            },
            "quality": {
                "enabled": False,
                "max_symbol_share": 0.1,
                "max_bullet_line_share": 0.9,
                "max_ellipsis_line_share": 0.3,
                "min_alphabetic_word_share": 0.7,
                "min_stop_words": 2,
            },
            "repetition": {
                "enabled": False,
                "min_words": 100,
                "max_duplicate_line_share": 0.3,
                "max_duplicate_paragraph_share": 0.3,
                "max_top_bigram_share": 0.2,
                "max_top_trigram_share": 0.18,
                "max_top_fourgram_share": 0.16,
                "max_duplicate_ngram_share": 0.3,
            },
            "personal_data": {"action": "keep", "emails": True, "phones": True, "ids": True},
        },
        "dedup": {
            "exact": True,
            "near": False,
            "threshold": 0.7,
            "split_threshold": 0.5,
            "contained": False,
            "contained_share": 0.8,
            "contained_sample": 32,
            "ngram": 5,
            "bands": 25,
            "rows": 5,
            "seed": 1,
        },
        "contamination": {"action": "off", "include": [], "ngram": 13, "min_overlap": 0.5},
        "val_fraction": 0.1,
        "tokenizer": {
            "kind": "byte",
            "min_frequency": 2,
            "train_megabytes": 10.0,
            "fast_encoder": True,
        },
        "shard_tokens": 65536,
        "document_mask": "none",
        "workers": 1,
        "evaluation": {
            "prompts": ["Había una vez"],
            "max_new_tokens": 8,
            "temperature": 0.0,
            "top_k": 0,
            "seed": 7,
        },
    },
    "export": {
        "name": "prueba",
        "gguf": ["f16"],
        "license": "",
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repeat_penalty": 1.1,
    },
}


def tiny_values(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Los valores de la configuración diminuta, con `changes` {"train.lr": 1e-3} aplicados."""
    values: dict[str, Any] = _copy(_TINY)
    for dotted, value in (changes or {}).items():
        *parents, leaf = dotted.split(".")
        section = values
        for parent in parents:
            section = section[parent]
        if leaf not in section:
            raise KeyError(f"la clave de prueba {dotted} no existe")
        section[leaf] = value
    return values


def make_config(changes: dict[str, Any] | None = None) -> Config:
    """Una `Config` diminuta y válida (bytes, CPU, fp32)."""
    return Config.model_validate(tiny_values(changes))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value
