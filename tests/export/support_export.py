"""Modelos diminutos para exportar: pesos al azar, normas incluidas, y un BPE del texto incluido."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from enlace.config.schema import ExportConfig
from enlace.data.tokenizer import TextTokenizer, save_tokenizer, train_bpe
from enlace.export.source import Source
from enlace.model.transformer import Transformer
from enlace.train.export import export_run
from tests.support import make_config
from tests.train.runs import ORIGIN, run_training

ROOT = Path(__file__).parents[2]
VOCABULARY = 1024
SETTINGS = ExportConfig.model_validate(make_config().export.model_dump() | {"gguf": ("q8_0",)})
SHAPE: dict[str, Any] = {
    "data.tokenizer.kind": "bpe",
    "model.vocab_size": VOCABULARY,
    "model.n_head": 4,
    "model.n_kv_head": 2,
    "model.d_model": 64,
    "model.seq_len": 256,
    "model.ffn_multiple_of": 32,
    # Ninguno es el valor por omisión de nadie: si alguien no lo escribe o no lo lee, se nota.
    "model.rope_theta": 5000.0,
    "model.norm_eps": 1e-4,
    "train.tokens_per_step": 512,
}


@cache
def small_tokenizer() -> TextTokenizer:
    """Un BPE de la muestra, también en mayúsculas: sin fusiones no habría qué partir mal."""
    files = sorted((ROOT / "data/sample/stories").glob("*.txt"))
    texts = [file.read_text("utf-8") for file in files]
    return TextTokenizer(train_bpe([*texts, *(text.upper() for text in texts)], VOCABULARY, 2))


@cache
def random_source(**changes: Any) -> Source:
    """Un modelo al azar, con logits de tamaño corriente; el mismo para los mismos cambios."""
    config = make_config(SHAPE | {key.replace("__", "."): value for key, value in changes.items()})
    torch.manual_seed(11)
    model = Transformer(config.model, "math").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    manifest = {
        "run_name": config.run_name,
        "identity": config.identity(),
        "data": "d" * 64,
        "step": 20,
        "tokens": 1000,
        "val_loss": None,
        "origin": ORIGIN,
        "segments": [{"device": "CPU"}],
    }
    return Source(Path("modelo"), model, config, small_tokenizer(), manifest)


def trained_folder(folder: Path, origin: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Un modelo entregado por un entrenamiento de unos pasos, como `checkpoints/model`.

    `origin` es de dónde dice venir; si no se da, el inventado de siempre.
    """
    steps = {"train.steps": 4, "train.decay": 2, "train.warmup": 1, "train.save_every": 2}
    run = folder / f"prueba-{'0' * 16}"
    run_training(run, make_config(SHAPE | steps | changes), origin=origin)
    save_tokenizer(small_tokenizer(), folder / "tokenizer")
    export_run(run, folder / "model", folder / "state", folder / "tokenizer")
    return folder / "model"
