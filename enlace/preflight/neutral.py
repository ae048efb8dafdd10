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
    "train.lr": PREFLIGHT_LR,
    "train.beta1": 0.9,
    "train.beta2": 0.95,
    "train.eps": 1e-8,
    "train.weight_decay": 0.1,
    "train.grad_clip": 1.0,
    "train.schedule": "wsd",
    "train.warmup": 0,
    "train.decay": 0.2,
    "train.decay_shape": "linear",
    "train.final_lr_fraction": 0.0,
    "train.log_every": 1,
    "data.name": "preflight",
    "data.source": "data/sample",
    "data.include": ["**/*.txt"],
    "data.format": "text",
    "data.text_column": "text",
    "data.on_bad_bytes": "fail",
    "data.min_chars": 0,
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
