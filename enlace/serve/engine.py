"""llama-server en otro proceso: se abre, da el texto según sale y se vuelve a abrir si se cae."""

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from enlace.errors import ServeError, fault_of

if TYPE_CHECKING:
    import aiohttp

_CHILD = (sys.executable, "-m", "enlace.serve.engine_child")
_CONNECT_SECONDS = 5.0
_LAST_WORDS = 300
_LINE_BYTES = 1 << 20
_TOO_SOON = 10.0
"""Un motor que se cae antes de estos segundos no se vuelve a abrir: se caería otra vez."""

Ending = Literal["", "end", "stop", "limit"]
"""Por qué acabó: aún no, el modelo, un texto de parada o los tokens pedidos."""


@dataclass(frozen=True)
class Piece:
    """Un trozo de respuesta; el último dice por qué acaba y cuántos tokens se han escrito."""

    text: str
    ending: Ending = ""
    tokens: int = 0


class EngineError(Exception):
    """El motor no contesta o ha rechazado lo que se le pide."""


class Engine(Protocol):
    """Lo que el servidor necesita de un motor."""

    def stream(self, ids: Sequence[int], settings: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        """Continúa unos ids; dejar de leer lo para."""
        ...


def require_engine() -> None:
    """Comprueba que está la biblioteca con llama.cpp.

    Raises:
        ServeError: falta.
    """
    missing = [name for name in ("aiohttp", "xllamacpp") if find_spec(name) is None]
    if missing:
        raise ServeError(
            f"para servir el modelo hace falta {' y '.join(missing)}; `make serve` lo instala "
            "(o: .venv/bin/python -m pip install -e '.[export]' -c .constraints.txt)"
        )


class LlamaEngine:
    """Un GGUF abierto con llama-server, en 127.0.0.1, con una clave que solo conoce este proceso.

    Muere con este proceso, acabe como acabe.
    """

    def __init__(self, model: Path, context: int, parallel: int) -> None:
        self._model = model
        self._key = secrets.token_urlsafe(32)
        self._settings = {
            "model": str(model.absolute()),
            "context": context,
            "parallel": parallel,
            "key": self._key,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._errors: IO[bytes] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._opened = 0.0

    @property
    def pid(self) -> int | None:
        """El proceso de llama.cpp, o None si está cerrado."""
        return None if self._process is None else self._process.pid

    async def open(self) -> None:
        """Arranca y espera a que el modelo esté cargado.

        Raises:
            ServeError: llama.cpp no pudo abrir el modelo.
        """
        import aiohttp

        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lo cierra `close`
        # En su propio grupo, para que Ctrl-C no le llegue: lo para este proceso.
        self._process = await asyncio.create_subprocess_exec(
            *_CHILD,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        address = await self._address(self._process)
        if address is None:
            words = self._last_words()
            await self.close()
            raise ServeError(f"llama.cpp no pudo abrir {self._model}: {words}")
        self._opened = time.monotonic()
        self._session = aiohttp.ClientSession(
            address,
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            headers={"Authorization": f"Bearer {self._key}"},
            read_bufsize=_LINE_BYTES,
        )

    async def close(self) -> None:
        """Para el proceso y espera a que acabe."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    async def keep_open(self) -> None:
        """Espera a que el proceso se caiga y lo vuelve a abrir, sin acabar nunca.

        Raises:
            ServeError: se cae nada más abrirse.
        """
        while self._process is not None:
            await self._process.wait()
            if time.monotonic() - self._opened < _TOO_SOON:
                raise ServeError(f"llama.cpp se ha parado: {self._last_words()}")
            await self.close()
            await self.open()

    async def stream(
        self, ids: Sequence[int], settings: dict[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        """Continúa unos ids y da el texto según sale; dejar de leer para la generación.

        Args:
            ids: el prompt, que debe dejar sitio en el contexto.
            settings: lo demás que entiende `/completion` de llama-server.

        Raises:
            EngineError: llama-server no contesta o rechaza la petición.
        """
        import aiohttp

        if self._session is None:
            raise EngineError("el motor se está abriendo")
        body = {"prompt": list(ids), "stream": True, **settings}
        try:
            async with self._session.post("/completion", json=body) as response:
                if response.status != 200:
                    raise EngineError((await response.text())[:_LAST_WORDS])
                async for line in response.content:
                    if line.startswith(b"data: "):
                        yield _piece(json.loads(line.removeprefix(b"data: ")))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise EngineError(fault_of(error)) from error

    async def _address(self, process: asyncio.subprocess.Process) -> str | None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(json.dumps(self._settings).encode())
            await process.stdin.drain()
        process.stdin.close()
        # El motor puede escribir avisos en su salida antes de la dirección.
        async for line in process.stdout:
            text = line.decode("utf-8", "replace").strip()
            if urlsplit(text).scheme == "http" and urlsplit(text).port:
                return text
        return None

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LINE_BYTES))
        text = self._errors.read().decode("utf-8", "replace")
        return " ".join(text.split())[-_LAST_WORDS:] or "no ha dicho por qué"


def _piece(event: dict[str, Any]) -> Piece:
    """Un suceso de `/completion` de llama-server."""
    if "error" in event:
        raise EngineError(str(event["error"].get("message"))[:_LAST_WORDS])
    text = str(event.get("content", ""))
    if not event.get("stop"):
        return Piece(text)
    endings: dict[str, Ending] = {"eos": "end", "word": "stop"}
    return Piece(
        text, endings.get(str(event.get("stop_type")), "limit"), int(event["tokens_predicted"])
    )
