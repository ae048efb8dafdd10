"""El servidor delante de llama-server: la API de OpenAI y la página, con sus límites."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError

from enlace.serve.answers import DONE, Answer, Kind, error_body, event, json_bytes
from enlace.serve.connections import Connections, own_faults
from enlace.serve.engine import Engine, EngineError, Piece
from enlace.serve.guard import RefusedError, Turns, check_host, check_origin, check_token
from enlace.serve.limits import Limits
from enlace.serve.page import HEADERS, page_routes
from enlace.serve.prompt import (
    EmptyTextError,
    Prompt,
    TooLongError,
    chat_prompt,
    reserved,
    text_prompt,
)
from enlace.serve.requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    problem_of,
    sampling_settings,
)
from enlace.serve.served import Served

COMPLETES = "completa texto; todavía no conversa"
_API = "/v1/"
_LINGER_SECONDS = 0.5
_SLOW = "el cuerpo de la petición tarda demasiado en llegar"
_LATE = "la respuesta ha tardado demasiado; pide menos tokens"
_DOWN = "el motor no contesta; prueba otra vez dentro de un momento"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Asked = TypeVar("Asked", bound=GenerationRequest)


class Front:
    """La puerta de un modelo: comprueba, espera turno, pide al motor y contesta."""

    def __init__(self, served: Served, engine: Engine, limits: Limits, token: str | None) -> None:
        """`token` es el que hay que dar para usar la API; None, ninguno."""
        self._served, self._engine = served, engine
        self._limits, self._token = limits, token
        self._turns = Turns(limits)
        application = web.Application(middlewares=[self._guard], client_max_size=limits.body_bytes)
        application.on_response_prepare.append(_add_headers)
        application.add_routes(
            [
                *page_routes(),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        self._runner = web.AppRunner(
            application,
            handle_signals=False,
            handler_cancellation=True,
            access_log=None,
            logger=own_faults(),
            keepalive_timeout=limits.idle_seconds,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
            shutdown_timeout=_LINGER_SECONDS,
        )

    async def open(self) -> Connections:
        """Lo prepara y devuelve con qué atender cada conexión que llegue."""
        await self._runner.setup()
        assert self._runner.server is not None
        return Connections(self._runner.server, self._limits.connections)

    async def close(self) -> None:
        """Corta lo que esté a medias y cierra."""
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check_host(request.headers.get("Host", ""), self._token)
            if request.path.startswith(_API):
                check_origin(request.headers)
                check_token(request.headers, self._token)
            return await handler(request)
        except RefusedError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            message = f"la petición pasa de {self._limits.body_bytes} bytes"
            return _refusal(RefusedError(413, message, "request_too_large"))
        except web.HTTPException as error:
            return _refusal(RefusedError(error.status, _HTTP.get(error.status, error.reason)))

    async def _models(self, _request: web.Request) -> web.Response:
        """`/v1/models`, con lo que la página necesita saber del modelo."""
        served, sampling = self._served, self._served.sampling
        entry = {
            "id": served.name,
            "object": "model",
            "created": 0,
            "owned_by": "enlace",
            "chats": served.chats,
            "description": "conversa" if served.chats else COMPLETES,
            "format": served.format,
            "context": served.context,
            "body_bytes": self._limits.body_bytes,
            "defaults": {
                "max_tokens": served.new_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": sampling.min_p,
                "repetition_penalty": sampling.repeat_penalty,
            },
        }
        return _json({"object": "list", "data": [entry]})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        asked = await self._read(request, CompletionRequest)
        reserve = reserved(self._served, asked.new_tokens or self._served.new_tokens)
        prompt = await self._prompt(text_prompt, self._served, asked.prompt, reserve, asked.forget)
        return await self._answer(request, asked, "text", prompt)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = await self._read(request, ChatRequest)
        if not self._served.chats:
            raise RefusedError(
                400, f"este modelo {COMPLETES}; usa /v1/completions", "model_does_not_chat"
            )
        reserve = reserved(self._served, asked.new_tokens or self._served.new_tokens)
        prompt = await self._prompt(chat_prompt, self._served, asked.turns, reserve, asked.forget)
        return await self._answer(request, asked, "chat", prompt)

    async def _read(self, request: web.Request, kind: type[Asked]) -> Asked:
        """El cuerpo, ya comprobado."""
        if request.content_type != "application/json" or request.headers.get("Content-Encoding"):
            raise RefusedError(415, "el cuerpo debe ser application/json, sin comprimir")
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await request.read()
        except TimeoutError:
            raise RefusedError(408, _SLOW) from None
        try:
            asked = kind.model_validate_json(body)
        except ValidationError as error:
            message, field = problem_of(error)
            raise RefusedError(400, message, "invalid_request", field) from None
        if asked.model not in (None, self._served.name):
            raise RefusedError(
                404,
                f"no hay ningún modelo «{asked.model}»; está {self._served.name}",
                "model_not_found",
                "model",
            )
        return asked

    @staticmethod
    async def _prompt(make: Callable[..., Prompt], *arguments: object) -> Prompt:
        # En un hilo: partir un texto largo son decenas de milisegundos en que nadie más avanzaría.
        try:
            return await asyncio.to_thread(make, *arguments)
        except TooLongError as error:
            raise RefusedError(400, str(error), "context_length_exceeded") from None
        except EmptyTextError as error:
            raise RefusedError(400, str(error), "invalid_request", "prompt") from None

    async def _answer(
        self, request: web.Request, asked: GenerationRequest, kind: Kind, prompt: Prompt
    ) -> web.StreamResponse:
        room = self._served.context - len(prompt.ids)
        settings = sampling_settings(self._served, asked, room)
        answer = Answer(kind, self._served.name, len(prompt.ids), prompt.forgotten)
        async with self._turns.turn():
            try:
                async with (
                    asyncio.timeout(self._limits.answer_seconds) as deadline,
                    aclosing(self._engine.stream(prompt.ids, settings)) as pieces,
                ):
                    # Lo primero, antes de contestar: si falla, el error lleva su código.
                    first = await _next(pieces)
                    if not asked.stream:
                        return _json(await _collect(answer, first, pieces))
                    return await self._stream(request, asked, answer, first, pieces, deadline)
            except TimeoutError:
                raise RefusedError(504, _LATE) from None
            except EngineError:
                raise RefusedError(502, _DOWN, retry=2) from None

    async def _stream(
        self,
        request: web.Request,
        asked: GenerationRequest,
        answer: Answer,
        piece: Piece,
        pieces: AsyncGenerator[Piece, None],
        deadline: asyncio.Timeout,
    ) -> web.StreamResponse:
        """Envía los trozos según salen; un error ya no puede ser un código, y va dentro."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(answer.opening())
        try:
            while True:
                if piece.text:
                    await response.write(answer.piece(piece.text))
                if piece.ending:
                    break
                piece = await _next(pieces)
        except (EngineError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not deadline.expired():
                raise  # quien llama se ha ido
            said = _DOWN if isinstance(error, EngineError) else _LATE
            end = event(error_body(said, "server_error", None, None))
        else:
            end = answer.closing(piece.ending)
            if asked.stream_options and asked.stream_options.include_usage:
                end += answer.usage(piece.tokens)
        await response.write(end + DONE)
        await response.write_eof()
        return response


async def _collect(
    answer: Answer, piece: Piece, pieces: AsyncGenerator[Piece, None]
) -> dict[str, object]:
    text = piece.text
    while not piece.ending:
        piece = await _next(pieces)
        text += piece.text
    return answer.whole(text, piece.ending, piece.tokens)


async def _next(pieces: AsyncGenerator[Piece, None]) -> Piece:
    try:
        return await anext(pieces)
    except StopAsyncIteration:
        raise EngineError("la respuesta se ha cortado") from None


def _json(
    value: dict[str, object], status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=json_bytes(value), status=status, headers=headers, content_type="application/json"
    )


def _refusal(error: RefusedError) -> web.Response:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    body = error_body(str(error), kind, error.code, error.param)
    return _json(body, status=error.status, headers=headers)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


_HTTP = {404: "aquí no hay nada", 405: "esa dirección no admite ese método"}
