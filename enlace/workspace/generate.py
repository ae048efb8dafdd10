"""Continuar un texto con el modelo terminado, en la GPU si la hay y si no en la CPU."""

import math
from pathlib import Path

from enlace.backends import Backend, open_device
from enlace.config.load import load_config
from enlace.config.schema import EvaluationConfig, HardwareConfig
from enlace.data.tokenizer import load_tokenizer
from enlace.errors import CheckpointError, ConfigError, HardwareError
from enlace.evaluation.samples import encode_prompt, generate_samples
from enlace.train.artifact import CONFIG
from enlace.train.export import load_model

_MAX_SEED = 2**63 - 1


def continue_text(
    folder: Path, prompt: str, *, max_new_tokens: int, temperature: float, top_k: int, seed: int
) -> str:
    """`prompt` seguido de lo que escribe el modelo de `folder`; si conversa, solo su respuesta.

    La longitud se recorta a lo que cabe en el contexto del modelo.

    Raises:
        CheckpointError: el modelo falta o está dañado.
        ConfigError: el principio está vacío, no es UTF-8 o ya llena el contexto, o la temperatura
            o la semilla no sirven.
    """
    _check_request(prompt, temperature, seed)
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"{folder} no tiene ningún modelo todavía; entrénalo con `make train` o trae el "
            "compartido con `make pull`"
        )
    backend = _open(load_config(folder / CONFIG).hardware)
    model, config = load_model(folder, backend.sdpa_backend, backend.device)
    tokenizer = load_tokenizer(folder)
    chat = config.data.format == "chat"
    length, limit = len(encode_prompt(tokenizer, prompt, chat)), config.model.seq_len
    if not 0 < length < limit:
        raise ConfigError(
            f"el texto ocupa {length} tokens y este modelo admite entre 1 y {limit - 1}; "
            "alárgalo o acórtalo"
        )
    settings = EvaluationConfig(
        prompts=(prompt,),
        max_new_tokens=min(max_new_tokens, limit - length),
        temperature=temperature,
        top_k=top_k,
        seed=seed,
    )
    sample = generate_samples(model, tokenizer, settings, backend, chat)[0]
    return sample.continuation if chat else sample.prompt + sample.continuation


def _check_request(prompt: str, temperature: float, seed: int) -> None:
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            "el texto no es UTF-8; revisa la codificación de la terminal (locale)"
        ) from None
    if not math.isfinite(temperature):
        raise ConfigError(f"temperature = {temperature} no es un número finito; prueba con 0.8")
    if seed > _MAX_SEED:
        raise ConfigError(f"seed = {seed} es demasiado grande; pon {_MAX_SEED} o menos")


def _open(hardware: HardwareConfig) -> Backend:
    """El dispositivo con que se entrenó o, si esta máquina no lo tiene, la CPU en fp32."""
    try:
        return open_device(hardware)
    except HardwareError:
        cpu = {"device": "cpu", "dtype": "fp32", "sdpa_backend": "flash", "compile": False}
        return open_device(hardware.model_copy(update=cpu))
