"""Las órdenes del linaje, que `enlace` ofrece junto a las demás.

Importar este módulo no importa torch.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from enlace.config.load import PARAMS_FILE
from enlace.workspace.project import enter_project
from enlace.workspace.usage import SpanishCommand

app = typer.Typer(rich_markup_mode=None)
command = partial(app.command, cls=SpanishCommand)

Target = Annotated[
    str, typer.Argument(metavar="RUTA", help="carpeta de un checkpoint, un run o un modelo")
]


@command()
def lineage(
    path: Target,
    as_json: Annotated[bool, typer.Option("--json", help="para programas")] = False,
) -> None:
    """Cuenta de dónde viene un checkpoint, un run o un modelo: texto, código, tramos y padres."""
    from enlace.workspace.lineage import lineage_text

    typer.echo(lineage_text(find_target(path), as_json))


@command()
def verify(
    path: Target,
    no_data: Annotated[bool, typer.Option("--no-data", help="sin releer datos ni caché")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="falla también si algo difiere o no se comprueba")
    ] = False,
) -> None:
    """Recalcula todo lo que un checkpoint o modelo dice de sí y nombra lo que no coincide."""
    from enlace.workspace.lineage import verify_lines

    for line in verify_lines(find_target(path), Path(), not no_data, strict):
        typer.echo(line)


@command()
def reproduce(
    path: Target,
    folder: Annotated[
        str, typer.Option("--run", metavar="CARPETA", help="hacerlo ahora, en un clon nuevo ahí")
    ] = "",
) -> None:
    """Escribe las órdenes que repiten un modelo desde un clon limpio, o las ejecuta."""
    from enlace.workspace.lineage import reproduce_lines, reproduce_now

    clone = Path(folder).absolute()
    target = find_target(path)
    if folder:
        reproduce_now(target, Path(), clone, lambda text: typer.echo(f"» {text}"))
        return
    for line in reproduce_lines(target, Path(), "enlace-repetido"):
        typer.echo(line)


@command("restore-params")
def restore_params(path: Target) -> None:
    """Escribe params.yaml con la configuración de un checkpoint o modelo."""
    from enlace.workspace.lineage import restore_params as restore

    typer.echo(f"{PARAMS_FILE} es ahora el run {restore(find_target(path), Path())}")


@command()
def prune(
    yes: Annotated[bool, typer.Option("--yes", help="borrar de verdad")] = False,
) -> None:
    """Enseña (y con --yes borra) los runs terminados cuyo modelo ya está a salvo."""
    from enlace.workspace.prune import prune_lines

    for line in prune_lines(enter_project(), yes):
        typer.echo(line)


def find_target(given: str) -> Path:
    """Entra en el proyecto y encuentra la carpeta que se pide."""
    start = Path.cwd()
    root = enter_project()

    from enlace.workspace.lineage import locate

    return locate(given, start, root)
