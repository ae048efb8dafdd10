"""Las peticiones de la API de OpenAI: qué se admite, y qué se le pide por ellas a llama-server.

Lo que no se admite se rechaza por su nombre: nunca se pasa por alto una opción que cambiaría la
respuesta. De lo que llega solo pasa al motor lo que está aquí.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from enlace.config.messages import show_bound
from enlace.data.documents import Role, Turn
from enlace.serve.served import Served

_ORDER = ("penalties", "temperature", "top_k", "top_p", "min_p")
"""El orden de los filtros de `enlace chat`, que es el de transformers y no el de llama.cpp."""
_MAX_STOPS, _MAX_STOP = 16, 200
_MAX_MESSAGES = 2000
_MAX_SEED = 2**32 - 1

Tokens = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
StopText = Annotated[str, Field(min_length=1, max_length=_MAX_STOP)]
_PROBLEMS: dict[str, str] = {
    "missing": "falta",
    "extra_forbidden": "no se admite aquí",
    "json_invalid": "no es JSON en UTF-8",
    "greater_than": "debe ser mayor que {gt}",
    "greater_than_equal": "debe ser {ge} o más",
    "less_than_equal": "debe ser {le} o menos",
    "literal_error": "debe ser {expected}",
    "string_too_short": "está vacío",
    "string_too_long": "pasa de {max_length} caracteres",
    "too_short": "está vacío",
    "too_long": "pasa de {max_length} elementos",
    "string_type": "debe ser texto",
    "int_type": "debe ser un entero",
    "int_from_float": "debe ser un entero",
    "float_type": "debe ser un número",
    "finite_number": "debe ser un número finito",
    "bool_type": "debe ser true o false",
    "list_type": "debe ser una lista",
    "model_type": "debe ser un objeto",
    "value_error": "{error}",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StreamOptions(_Strict):
    """Qué más se cuenta al acabar."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(_Strict):
    """Lo común a las dos maneras de pedir texto; lo que falta, como se exportó el modelo."""

    model: str | None = None
    max_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=_MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    n: Literal[1] | None = None
    user: str | None = None

    @property
    def new_tokens(self) -> int | None:
        """Los tokens nuevos que se piden."""
        return self.max_tokens

    @property
    def forget(self) -> bool:
        """Si, cuando no cabe todo, se olvida lo más antiguo en vez de fallar."""
        return self.truncation == "auto"


class CompletionRequest(GenerationRequest):
    """`/v1/completions`: un texto que se continúa."""

    prompt: str


class TextPart(_Strict):
    """Un trozo de mensaje."""

    type: Literal["text"]
    text: str


class Message(_Strict):
    """Un turno."""

    role: Role
    content: str | Annotated[list[TextPart], Field(min_length=1)]

    @property
    def turn(self) -> Turn:
        """El turno, con sus trozos unidos."""
        if isinstance(self.content, str):
            return Turn(self.role, self.content)
        return Turn(self.role, "".join(part.text for part in self.content))


class ChatRequest(GenerationRequest):
    """`/v1/chat/completions`: una conversación que espera respuesta."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=_MAX_MESSAGES)]
    max_completion_tokens: Tokens | None = None

    @property
    def new_tokens(self) -> int | None:
        """Los tokens nuevos que se piden, con el nombre de ahora o con el de antes."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def turns(self) -> list[Turn]:
        """Los turnos, en orden."""
        return [message.turn for message in self.messages]

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        roles = [message.role for message in self.messages]
        if "system" in roles[1:]:
            raise ValueError("las instrucciones de sistema solo pueden ir al principio")
        if roles[-1] != "user":
            raise ValueError("el último mensaje debe ser del usuario")
        return self


def sampling_settings(served: Served, request: GenerationRequest, room: int) -> dict[str, Any]:
    """Lo que se le pide a `/completion` de llama-server, además de los ids.

    Con ello llama.cpp muestrea como `enlace chat`: los mismos filtros en el mismo orden, y penaliza
    lo repetido en todo el contexto. Así lo comprueba `tests/serve/test_llama_sampling.py`.

    Args:
        served: el modelo, con su muestreo.
        request: lo pedido.
        room: los tokens que aún caben en el contexto.
    """
    ours = served.sampling
    wanted = request.new_tokens or served.new_tokens
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    settings: dict[str, Any] = {
        "n_predict": min(wanted, room),
        "samplers": list(_ORDER),
        "repeat_last_n": served.context,
        "temperature": _given(request.temperature, ours.temperature),
        "top_k": _given(request.top_k, ours.top_k),
        "top_p": _given(request.top_p, ours.top_p),
        "min_p": _given(request.min_p, ours.min_p),
        "repeat_penalty": _given(request.repetition_penalty, ours.repeat_penalty),
        "presence_penalty": request.presence_penalty or 0.0,
        "frequency_penalty": request.frequency_penalty or 0.0,
        "stop": stops,
    }
    return settings if request.seed is None else settings | {"seed": request.seed}


def problem_of(error: ValidationError) -> tuple[str, str | None]:
    """El primer fallo en una frase, y el campo en el que está."""
    # De una unión falla cada rama: vale la que llega más adentro, o la que era de su tipo.
    first = max(
        error.errors(include_url=False),
        key=lambda item: (len(item["loc"]), not item["type"].endswith("_type")),
    )
    context = {key: show_bound(value) for key, value in first.get("ctx", {}).items()}
    said = _PROBLEMS.get(first["type"], "no vale").format(**context)
    field = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    if field:
        return f"{field}: {said}", field
    return (said if first["type"] == "value_error" else f"la petición {said}"), None


def _is_branch(part: int | str) -> bool:
    """Si es el nombre que pydantic da a una rama de una unión, y no un campo."""
    return isinstance(part, str) and ("[" in part or part in ("str", "constrained-str"))


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
