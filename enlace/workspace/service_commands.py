"""Las órdenes del servicio de systemd, que `enlace` ofrece junto a las demás."""

from functools import partial
from typing import Annotated

import typer

from enlace.config.load import PARAMS_FILE, load_config
from enlace.workspace.project import enter_project
from enlace.workspace.usage import SpanishCommand

app = typer.Typer(rich_markup_mode=None)
command = partial(app.command, cls=SpanishCommand)


@command()
def service(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="run (el de params.yaml)")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="quitar la unidad")] = False,
) -> None:
    """Escribe la unidad de systemd que sigue el entrenamiento tras un corte de luz."""
    from enlace.workspace.params import require_run
    from enlace.workspace.service import install, uninstall

    root = enter_project()
    name = run or load_config(root / PARAMS_FILE).run_name
    if not remove:
        require_run(name, root)
    for line in uninstall(name) if remove else install(name, root):
        typer.echo(line)


@command("service-run", hidden=True)
def service_run(run: Annotated[str, typer.Argument(metavar="RUN", help="run")]) -> None:
    """Lo que ejecuta la unidad: entrena y sale con el código de la etapa."""
    from enlace.workspace.service import run_service

    run_service(run, enter_project())
