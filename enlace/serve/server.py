"""Abrir el puerto y el motor, atender hasta que lo paren y no dejar nada detrás."""

import asyncio
import errno
import ipaddress
import os
import secrets
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from enlace.errors import ServeError, fault_of
from enlace.serve.engine import LlamaEngine, require_engine
from enlace.serve.guard import is_local
from enlace.serve.limits import Limits, limits_for
from enlace.serve.served import Served

_TOKEN_BYTES = 24
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 512
_ELSEWHERE = ("192.0.2.1", 9)
"""Una dirección de documentación (RFC 5737): no se le envía nada."""
Say = Callable[[str], object]


@dataclass(frozen=True)
class Place:
    """Dónde se atiende: dirección, puerto (0: el que esté libre) y token, si lo hay."""

    host: str
    port: int
    token: str | None


def choose_place(host: str, port: int, allow_network: bool, token_file: Path | None) -> Place:
    """Dónde se atiende y con qué token.

    Fuera de esta máquina hace falta permiso expreso y siempre hay token: el del fichero, que se
    crea si no existe, o uno nuevo.

    Raises:
        ServeError: falta el permiso, o el fichero del token no sirve.
    """
    local = is_local(host)
    if not local and not allow_network:
        raise ServeError(
            f"con --host {host} podría entrar cualquiera de tu red; si es lo que quieres, añade "
            "--allow-network (pedirá un token)"
        )
    if token_file is not None:
        return Place(host, port, read_token(token_file))
    return Place(host, port, None if local else secrets.token_urlsafe(_TOKEN_BYTES))


def read_token(path: Path) -> str:
    """El token de un fichero; si no existe, lo crea con uno nuevo que solo lee su dueño.

    Raises:
        ServeError: no se puede leer, lo puede leer otro usuario, o no parece un token.
    """
    try:
        if not path.exists():
            _create_token(path)
    except OSError as error:
        raise ServeError(f"{path} no se puede crear: {fault_of(error)}") from error
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ServeError(f"otros usuarios pueden leer {path}; quítaselo: chmod 600 {path}")
        token = path.read_bytes()[: _LONGEST_TOKEN + 2].decode("ascii").strip()
    except OSError as error:
        raise ServeError(f"{path} no se puede leer: {fault_of(error)}") from error
    except UnicodeDecodeError:
        token = ""
    if (
        not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN
        or not token.isprintable()
        or " " in token
    ):
        raise ServeError(
            f"{path} no tiene un token: hacen falta de {_SHORTEST_TOKEN} a {_LONGEST_TOKEN} letras "
            "y cifras sin espacios; bórralo y se creará uno"
        )
    return token


def _create_token(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")


def serve(served: Served, place: Place, parallel: int, say: Say) -> None:
    """Atiende hasta Ctrl-C o SIGTERM; entonces corta lo que haya a medias y vuelve.

    Args:
        served: el modelo.
        place: dónde.
        parallel: respuestas a la vez.
        say: recibe una línea cuando está listo.

    Raises:
        ServeError: el puerto está ocupado, falta la biblioteca o llama.cpp no abre el modelo.
    """
    require_engine()
    limits = limits_for(served.context, parallel)
    with listen(place, limits.unread_seconds) as listener:
        asyncio.run(_serve(served, place, limits, listener, say))


def listen(place: Place, unread_seconds: float) -> socket.socket:
    """El puerto, ya abierto; el núcleo cuelga a quien pasa ese tiempo sin leer lo que se le envía.

    Raises:
        ServeError: está en uso, no se permite o la dirección no es de esta máquina.
    """
    try:
        found = socket.getaddrinfo(
            place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise ServeError(f"--host {place.host} no es una dirección conocida") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Lo heredan las conexiones; vale también cuando al otro lado no queda sitio para más.
        patience = round(1000 * unread_seconds)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ServeError(
                f"el puerto {place.port} de {place.host} ya está en uso (¿otro enlace serve?); "
                "ciérralo o elige otro con --port"
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ServeError(f"{place.host} no es una dirección de esta máquina") from None
        raise ServeError(
            f"no se puede abrir el puerto {place.port} de {place.host}: {fault_of(error)}"
        ) from None
    return listener


async def _serve(
    served: Served, place: Place, limits: Limits, listener: socket.socket, say: Say
) -> None:
    from enlace.serve.app import Front

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    engine = LlamaEngine(served.gguf, served.context, limits.parallel)
    front = Front(served, engine, limits, place.token)
    waits: list[asyncio.Task[object]] = [asyncio.create_task(stop.wait())]
    server: asyncio.Server | None = None
    try:
        opening = asyncio.create_task(engine.open())
        await asyncio.wait([waits[0], opening], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            opening.cancel()
            with suppress(asyncio.CancelledError):
                await opening
            return
        await opening
        connections = await front.open()
        server = await loop.create_server(connections, sock=listener, backlog=limits.connections)
        for line in ready_lines(served, place, listener.getsockname()[1]):
            say(line)
        waits.append(asyncio.create_task(engine.keep_open()))
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in waits:
            task.cancel()
        if server is not None:
            server.close()
        await engine.close()
        await front.close()


def ready_lines(served: Served, place: Place, port: int) -> list[str]:
    """Lo que se dice al estar listo: el modelo y cómo llegar a él."""
    kind = "conversa" if served.chats else "completa texto; todavía no conversa"
    key = "" if place.token is None else f"/#token={place.token}"
    hosts = {"": place.host}
    if not is_local(place.host) and _is_wildcard(place.host):
        hosts = {"": "127.0.0.1", "Desde otro aparato: ": _own_address()}
    return [
        f"Modelo {served.name} ({served.gguf.name}): {kind}.",
        *(f"{label}http://{_bracketed(host)}:{port}{key}" for label, host in hosts.items()),
        "Ctrl-C para acabar.",
    ]


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _own_address() -> str:
    """La dirección de esta máquina en su red, o su nombre si no se sabe."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
