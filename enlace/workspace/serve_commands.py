"""La orden que sirve el modelo exportado, que `enlace` ofrece junto a las demás."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from enlace.paths import EXPORTED
from enlace.workspace.project import enter_project
from enlace.workspace.usage import SpanishCommand

app = typer.Typer(rich_markup_mode=None)
command = partial(app.command, cls=SpanishCommand)

_LARGEST_PORT = 65535


@command()
def serve(
    folder: Annotated[
        str, typer.Argument(metavar="CARPETA", help="modelo exportado (exported)")
    ] = "",
    host: Annotated[str, typer.Option(metavar="DIRECCIÓN", help="dónde atiende")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=_LARGEST_PORT, help="puerto; 0: uno libre")
    ] = 8000,
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="dejar entrar desde la red, con token")
    ] = False,
    token_file: Annotated[
        str, typer.Option(metavar="FICHERO", help="el token; si no existe, lo crea")
    ] = "",
    gguf: Annotated[
        str, typer.Option(metavar="FICHERO", help="GGUF de la carpeta (el mejor para una CPU)")
    ] = "",
    parallel: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="respuestas a la vez")
    ] = 4,
) -> None:
    """Sirve el modelo exportado: una página para hablar con él y la API de OpenAI."""
    given = Path(folder).absolute() if folder else None
    secret = Path(token_file).absolute() if token_file else None
    enter_project()

    from enlace.serve.engine import require_engine
    from enlace.serve.served import open_served
    from enlace.serve.server import choose_place, serve

    require_engine()
    place = choose_place(host, port, allow_network, secret)
    served = open_served(given or EXPORTED, gguf)
    serve(served, place, parallel, typer.echo)
