"""La orden que trae el texto, que `enlace` ofrece junto a las demás."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from enlace.config.load import PARAMS_FILE, load_config
from enlace.errors import ConfigError
from enlace.figures import counted, integer, size
from enlace.workspace.project import enter_project
from enlace.workspace.usage import SpanishCommand

app = typer.Typer(rich_markup_mode=None)
command = partial(app.command, cls=SpanishCommand)


@command()
def corpus(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="SRC", help="ficheros o carpetas con texto")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="traer lo que dice data.downloads")
    ] = False,
) -> None:
    """Copia texto a data/raw, o lo descarga, y lo apunta en DVC."""
    if download:
        if sources:
            raise ConfigError("o se descarga o se copia: quita --download o las rutas")
        _download()
        return
    from enlace.workspace.raw import import_sources, inspect_sources, split_sources, survey_lines

    paths = split_sources(sources or [], Path.cwd())
    if not paths:
        raise ConfigError("falta decir qué texto: make corpus SRC=carpeta-o-fichero")
    root = enter_project()
    found = inspect_sources(paths, root)
    for source in found:
        typer.echo("\n".join(survey_lines(source)))
    done = import_sources(found, root)
    for source in done.copied:
        hidden = f", {counted(source.skipped, 'oculto')} fuera" if source.skipped else ""
        typer.echo(
            f"copiado {source.path.name}: {counted(len(source.files), 'fichero')}, "
            f"{size(source.size)}{hidden}"
        )
    for source in done.present:
        typer.echo(f"{source.path.name} ya estaba, idéntico")
    typer.echo("data/raw está apuntado en DVC; guarda data/raw.dvc con git commit")


def _download() -> None:
    from enlace.workspace.download import download_all

    root = enter_project()
    data = load_config(root / PARAMS_FILE).data
    for entry in data.downloads:
        typer.echo(
            f"{entry.name}: {entry.dataset} {entry.subset}, hasta "
            f"{integer(round(entry.max_megabytes))} MB, licencia {entry.license}"
        )
    for done in download_all(data, root, typer.echo):
        n_bytes, documents = done.manifest["bytes"], done.manifest["documents"]
        verb = "ya estaba en" if done.present else "está en"
        typer.echo(
            f"{verb} {done.folder}: {counted(documents, 'documento')}, {size(n_bytes)} de texto"
        )
    typer.echo("data/raw está apuntado en DVC; guarda data/raw.dvc con git commit")
