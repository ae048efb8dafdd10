"""Cuántas conexiones hay abiertas.

Lo demás lo hacen otros: aiohttp cierra a quien no acaba sus cabeceras (`keepalive_timeout`) y el
núcleo, a quien no lee lo que se le envía (`TCP_USER_TIMEOUT`).
"""

import asyncio
import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

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

    def __init__(self, server: web.Server, most: int) -> None:
        self._server = server
        self._most = most

    def __len__(self) -> int:
        """Las que hay abiertas."""
        return len(self._server.connections)

    def __call__(self) -> asyncio.BaseProtocol:
        """El protocolo de una conexión que acaba de llegar."""
        return self._server() if len(self) < self._most else _Full()


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
