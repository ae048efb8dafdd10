"""La página: ficheros propios, sin nada de fuera, y las cabeceras que se lo exigen al navegador."""

from importlib.resources import files
from pathlib import PurePath

from aiohttp import web

_FOLDER = "page"
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
    "Server": "enlace",
}
"""Van en todas las respuestas. La página solo puede hablar con este servidor, y ninguna otra puede
meterla dentro de sí ni leer lo que contesta."""


def page_routes() -> list[web.RouteDef]:
    """Las rutas de la página, con su contenido ya leído."""
    folder = files("enlace.serve") / _FOLDER
    return [_route(file.name, file.read_bytes()) for file in folder.iterdir()]


def _route(name: str, content: bytes) -> web.RouteDef:
    kind = _KINDS[PurePath(name).suffix]

    async def send(_request: web.Request) -> web.Response:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return web.get("/" if name == _INDEX else f"/{name}", send)
