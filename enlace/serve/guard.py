"""Quién puede pedir qué: la máquina, la página de la que viene, el token y el turno.

Sin token solo se atiende a esta máquina, y aun así un navegador que esté en ella puede ser la mano
de una página ajena. Se le cierran los dos caminos: llamar desde otra página (se mira `Origin` y
`Sec-Fetch-Site`) y cambiar a qué máquina apunta su propio nombre, DNS rebinding (se mira `Host`).
"""

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from enlace.serve.limits import Limits


class RefusedError(Exception):
    """Una petición que no se atiende: qué código y por qué."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        retry: int | None = None,
    ) -> None:
        """`retry` son los segundos tras los que vale la pena repetirla."""
        super().__init__(message)
        self.status, self.code, self.param, self.retry = status, code, param, retry


def check_host(host: str, token: str | None) -> None:
    """Sin token, solo se atiende por un nombre de esta misma máquina.

    Con token da igual: quien cambia a dónde apunta su nombre no lo sabe.

    Raises:
        RefusedError: no lo es.
    """
    if token is None and not is_local(_hostname(host)):
        raise RefusedError(403, f"este servidor no atiende por el nombre «{host}»", "bad_host")


def check_origin(headers: Mapping[str, str]) -> None:
    """Un navegador solo puede llamar desde la página de este servidor.

    Raises:
        RefusedError: la llamada viene de otra.
    """
    origin, host = headers.get("Origin"), headers.get("Host", "")
    site = headers.get("Sec-Fetch-Site", "none")
    if (origin is not None and urlsplit(origin).netloc.lower() != host.lower()) or site not in (
        "none",
        "same-origin",
    ):
        raise RefusedError(403, "la llamada viene de otra página", "bad_origin")


def check_token(headers: Mapping[str, str], token: str | None) -> None:
    """Con token, hay que darlo; se compara en un tiempo que no dice en qué letra difiere.

    Raises:
        RefusedError: falta o es otro.
    """
    if token is None:
        return
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not same:
        raise RefusedError(401, "falta el token o no es el de este servidor", "invalid_api_key")


def is_local(host: str) -> bool:
    """Si un nombre o una dirección es siempre esta máquina."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Turns:
    """Cuántas respuestas se generan a la vez, y la cola de las que esperan."""

    def __init__(self, limits: Limits) -> None:
        self._free = asyncio.Semaphore(limits.parallel)
        self._limits = limits
        self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Espera turno y lo mantiene mientras dura el bloque; quien se va deja su sitio.

        Raises:
            RefusedError: hay demasiadas esperando, o no le llega el turno.
        """
        if self.waiting >= self._limits.waiting:
            raise _busy()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise _busy() from None
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()


def _busy() -> RefusedError:
    return RefusedError(503, "hay demasiada gente esperando; prueba dentro de un rato", retry=5)


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
