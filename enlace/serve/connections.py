"""Cuántas conexiones hay abiertas y cuánto puede estar una sin pedir nada.

aiohttp atiende cada conexión sin gastar un hilo, pero espera sin límite a quien no acaba de
escribir sus cabeceras y no pone tope a cuántos esperan así.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from enlace.serve.limits import Limits

_LOOKS = 4
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\n"
)


class _Full(asyncio.Protocol):
    """Contesta que no hay sitio, sin leer nada."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()


class Connections:
    """Las conexiones de un servidor; llamarla da el protocolo de una nueva."""

    def __init__(self, server: web.Server, limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._idle: dict[asyncio.BaseProtocol, float] = {}

    def __call__(self) -> asyncio.BaseProtocol:
        """El protocolo de una conexión que acaba de llegar."""
        if len(self._server.connections) >= self._limits.connections:
            return _Full()
        protocol = self._server()
        self._idle[protocol] = time.monotonic()
        return protocol

    @contextmanager
    def busy(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """Mientras dura el bloque, la conexión está atendida y no se cierra."""
        self._idle.pop(protocol, None)
        try:
            yield
        finally:
            self._idle[protocol] = time.monotonic()

    async def close_idle(self) -> None:
        """Cierra las que llevan demasiado sin pedir nada, sin acabar nunca."""
        while True:
            await asyncio.sleep(self._limits.idle_seconds / _LOOKS)
            oldest = time.monotonic() - self._limits.idle_seconds
            alive = set(self._server.connections)
            self._idle = {each: since for each, since in self._idle.items() if each in alive}
            for protocol in alive:
                if self._idle.get(protocol, oldest + 1) < oldest and protocol.transport:
                    protocol.transport.abort()


def own_faults() -> logging.Logger:
    """Dónde cuenta aiohttp lo que falla aquí.

    De lo que no es HTTP, que puede enviar cualquiera, y de quien se va a mitad, no se cuenta nada.
    """
    logger = logging.Logger("enlace.serve")
    logger.addHandler(logging.StreamHandler())
    logger.addFilter(
        lambda record: (
            not (
                record.exc_info
                and isinstance(record.exc_info[1], HttpProcessingError | ConnectionError)
            )
        )
    )
    return logger
