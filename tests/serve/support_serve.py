"""Un servidor en este proceso, con un motor de mentira al que se le ve todo lo que hace."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from enlace.serve.app import Front
from enlace.serve.connections import Connections
from enlace.serve.engine import EngineError, Piece
from enlace.serve.limits import Limits
from enlace.serve.served import Served
from enlace.serve.server import Place, listen
from tests.export.support_export import SETTINGS, small_tokenizer

CONTEXT = 256
QUICK = Limits(
    body_bytes=4096,
    parallel=2,
    waiting=2,
    connections=8,
    idle_seconds=0.3,
    body_seconds=0.3,
    queue_seconds=5.0,
    answer_seconds=5.0,
    unread_seconds=0.3,
)
"""Límites tan cortos que una prueba los alcanza."""
TEXT = {"prompt": "Había una vez"}
TALK = {"messages": [{"role": "user", "content": "Hola"}]}


def served(chats: bool = False) -> Served:
    """Un modelo que solo existe para la puerta."""
    return Served(
        "prueba", Path("prueba-Q8_0.gguf"), chats, CONTEXT, small_tokenizer(), SETTINGS, 8
    )


class FakeEngine:
    """Contesta lo que se le diga y cuenta cuántas respuestas están abiertas."""

    def __init__(self, words: Sequence[str] = ("¡Hola", ", ", "niña!"), delay: float = 0.0) -> None:
        self.words, self.delay = list(words), delay
        self.fails_after: int | None = None
        self.asked: list[tuple[list[int], dict[str, Any]]] = []
        self.open = self.most = 0

    async def stream(self, ids: Sequence[int], settings: dict[str, Any]) -> AsyncGenerator[Piece]:
        """Cede las palabras, con una espera delante de cada una."""
        self.asked.append((list(ids), settings))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            for number, word in enumerate(self.words):
                if number == self.fails_after:
                    raise EngineError("se ha caído")
                await asyncio.sleep(self.delay)
                yield Piece(word)
            yield Piece("", "end", len(self.words))
        finally:
            self.open -= 1


@dataclass
class Server:
    """Un servidor en marcha."""

    port: int
    connections: Connections
    client: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(
        self, path: str, body: dict[str, Any], **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """El código y el JSON de una petición."""
        async with self.client.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Una conexión a la que se escribe tal cual."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer


@asynccontextmanager
async def running(
    engine: FakeEngine,
    *,
    chats: bool = False,
    limits: Limits = QUICK,
    token: str | None = None,
) -> AsyncIterator[Server]:
    """La puerta, atendiendo en un puerto libre."""
    front = Front(served(chats), engine, limits, token)
    connections = await front.open()
    place = Place("127.0.0.1", 0, token)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(connections, sock=listen(place, limits.unread_seconds))
    port = listener.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client:
        try:
            yield Server(port, connections, client)
        finally:
            listener.close()
            await front.close()


def changed(**values: Any) -> Limits:
    """Los límites cortos, con algún cambio."""
    return replace(QUICK, **values)


def events(body: str) -> list[dict[str, Any]]:
    """Los sucesos de una respuesta por trozos, que debe acabar como manda la API."""
    found = re.findall(r"^data: (.+)$", body, re.MULTILINE)
    assert found[-1] == "[DONE]"
    return [json.loads(each) for each in found[:-1]]


def post_bytes(path: str, body: bytes, length: int | None = None) -> bytes:
    """Una petición entera, escrita a mano."""
    size = len(body) if length is None else length
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode() + body


async def until(condition: Any) -> None:
    """Espera a que algo se cumpla; si no llega, la prueba falla por tiempo."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
