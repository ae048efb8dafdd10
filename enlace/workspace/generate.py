"""Continuar un texto con un modelo, según sale."""

from collections.abc import Callable
from pathlib import Path

from enlace.config.schema import Config
from enlace.errors import CheckpointError, ConfigError
from enlace.figures import integer
from enlace.inference.conversation import Conversation, Text, too_long
from enlace.inference.engine import Engine, Outcome, Request, open_engine
from enlace.model.sampling import Sampling
from enlace.paths import MODEL, TOKENIZER

_MAX_SEED = 2**63 - 1

Say = Callable[[str], object]


def continue_text(engine: Engine, prompt: str, request: Request, seed: int, write: Say) -> str:
    """Escribe lo que sigue a `prompt` según sale y devuelve la nota final, vacía si no la hay.

    Si el modelo solo completa textos, escribe antes el propio `prompt`. Se para donde se acaba el
    contexto del modelo.

    Raises:
        ConfigError: el principio está vacío, no es UTF-8 o ya llena el contexto.
    """
    check_utf8(prompt)
    talk = new_talk(engine)
    asked = talk.ask(prompt, 0)
    if not asked.ids:
        raise ConfigError(too_long(0, engine.seq_len))
    if not engine.chats:
        write(engine.tokenizer.decode(asked.ids))
    outcome = Outcome()
    for piece in engine.stream(asked.ids, request, engine.generator(seed), outcome):
        write(piece)
    return context_note(engine) if outcome.ending == "context" else ""


def new_talk(engine: Engine, system: str = "") -> Conversation | Text:
    """La conversación de un modelo que conversa, o el texto de uno que solo completa.

    Raises:
        ConfigError: hay instrucciones de sistema y el modelo no conversa.
    """
    from enlace.data.tokenizer import TextTokenizer

    if engine.chats and isinstance(engine.tokenizer, TextTokenizer):
        return Conversation(engine.tokenizer, engine.seq_len, system)
    if system:
        raise ConfigError("este modelo solo completa texto y no entiende --system; quítalo")
    return Text(engine.tokenizer, engine.seq_len)


def context_note(engine: Engine) -> str:
    """Lo que se dice cuando el texto llega al final del contexto."""
    return (
        f"se para aquí: el texto ya ocupa los {integer(engine.seq_len)} tokens que este modelo "
        "puede leer"
    )


def open_for_use(given: Path | None) -> Engine:
    """El modelo de la carpeta dada, o el entregado por la tubería.

    Raises:
        CheckpointError: falta o está dañado.
    """
    folder = given or MODEL
    if given is not None and not given.is_dir():
        raise CheckpointError(
            f"{given} no existe o no es una carpeta; da la de un modelo, la de un checkpoint o la "
            "de un run"
        )
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} no tiene ningún modelo todavía; entrénalo con `make train` o trae el "
            "compartido con `make pull`"
        )
    return open_engine(folder, TOKENIZER)


def build_request(
    config: Config,
    *,
    max_new_tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    stops: tuple[str, ...],
) -> Request:
    """Lo que se ha pedido; lo que falta (None) sale de `params.yaml`: `export` y `data.evaluation`.

    Raises:
        ConfigError: un valor está fuera de su intervalo.
    """
    defaults = config.export
    values = {
        "temperature": defaults.temperature if temperature is None else temperature,
        "top_k": defaults.top_k if top_k is None else top_k,
        "top_p": defaults.top_p if top_p is None else top_p,
        "min_p": defaults.min_p if min_p is None else min_p,
        "repetition_penalty": (
            defaults.repeat_penalty if repetition_penalty is None else repetition_penalty
        ),
    }
    try:
        sampling = Sampling(**values)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for stop in stops:
        check_utf8(stop)
    length = config.data.evaluation.max_new_tokens if max_new_tokens is None else max_new_tokens
    return Request(length, sampling, stops)


def check_seed(seed: int) -> int:
    """La semilla, si torch la admite.

    Raises:
        ConfigError: es demasiado grande.
    """
    if seed > _MAX_SEED:
        raise ConfigError(f"seed = {seed} es demasiado grande; pon {_MAX_SEED} o menos")
    return seed


def check_utf8(text: str) -> None:
    """Rechaza lo que la terminal no ha sabido leer.

    Raises:
        ConfigError: el texto no es UTF-8.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            "el texto no es UTF-8; revisa la codificación de la terminal (locale)"
        ) from None
