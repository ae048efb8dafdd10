"""Mucha gente a la vez contra un servidor, desde otro proceso; una parte se porta mal.

    python -m tests.serve.crowd PUERTO CUÁNTOS < esperado.json

Escribe cuántas respuestas buenas han llegado y cuáles no, en JSON.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

PATH = "/v1/chat/completions"
SLOW_SECONDS = 2.0
PATIENCE = 120.0


class Crowd:
    """Los que llaman; `asked` es lo que piden y `expected`, el texto que debe venir."""

    def __init__(self, port: int, asked: dict[str, object], expected: str) -> None:
        self.port, self.expected = port, expected
        self.body = json.dumps(asked).encode()
        self.stream = json.dumps(asked | {"stream": True}).encode()
        self.seen: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        """Todos a la vez; dos de cada cinco se portan bien."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.good,
            self.vanish_at_once,
            self.good,
            self.vanish_midway,
            self.garbage,
            self.good,
            self.oversize,
            self.good,
            self.slow_body,
            self.half_header,
        ]
        await asyncio.gather(*(kinds[number % len(kinds)]() for number in range(count)))

    async def good(self) -> None:
        """Pide y espera; apunta qué le contestan."""
        reader, writer = await self._send(self._request(self.body))
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        status = head.split()[1].decode() if head else "nada"
        if status == "200":
            said = json.loads(content)["choices"][0]["message"]["content"]
            status = "bien" if said == self.expected else f"mal: {said!r}"
        self.seen[status] += 1

    async def vanish_at_once(self) -> None:
        """Pide y se va."""
        _, writer = await self._send(self._request(self.body))
        await writer.drain()
        writer.transport.abort()

    async def vanish_midway(self) -> None:
        """Se va cuando ya le están contestando."""
        reader, writer = await self._send(self._request(self.stream))
        assert b" 200 " in await reader.readline()
        writer.transport.abort()

    async def garbage(self) -> None:
        """Escribe cualquier cosa."""
        reader, writer = await self._send(b"\x00\xff\x16\x03 no es HTTP\r\n\r\n" * 20)
        # Puede encontrarse la conexión ya cerrada, con lo suyo sin leer.
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()

    async def oversize(self) -> None:
        """Anuncia un cuerpo enorme y empieza a enviarlo."""
        reader, writer = await self._send(self._request(b"x" * 100_000, 10**9))
        with suppress(ConnectionResetError):
            assert b" 413 " in await reader.readline()
        writer.transport.abort()

    async def slow_body(self) -> None:
        """Envía el cuerpo a gotas y se cansa."""
        _, writer = await self._send(self._request(self.body[:10], len(self.body)))
        await asyncio.sleep(SLOW_SECONDS)
        writer.transport.abort()

    async def half_header(self) -> None:
        """No acaba sus cabeceras."""
        _, writer = await self._send(b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: loc")
        await asyncio.sleep(SLOW_SECONDS)
        writer.transport.abort()

    def _request(self, body: bytes, length: int | None = None) -> bytes:
        size = len(body) if length is None else length
        return (
            f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {size}\r\n\r\n"
        ).encode() + body

    async def _send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer


def main() -> None:
    """Lee qué se pide y qué se espera; escribe lo visto."""
    given = json.load(sys.stdin)
    crowd = Crowd(int(sys.argv[1]), given["asked"], given["expected"])
    asyncio.run(crowd.run(int(sys.argv[2])))
    sys.stdout.write(json.dumps(crowd.seen))


if __name__ == "__main__":
    main()
