"""La orden que compara el tokenizador con otros, que `enlace` ofrece junto a las demás."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from enlace.paths import CORPUS, TOKENIZER
from enlace.workspace.project import enter_project
from enlace.workspace.usage import SpanishCommand

app = typer.Typer(rich_markup_mode=None)
command = partial(app.command, cls=SpanishCommand)


@command("compare-tokenizer")
def compare_tokenizer(
    others: Annotated[
        list[Path],
        typer.Argument(metavar="FICHERO…", help="tokenizer.json o tekken.json de otro modelo"),
    ],
) -> None:
    """Compara data/tokenizer con los de otros modelos en el texto de validación, por género."""
    from enlace.data.foreign import compare_tokenizers
    from enlace.reports.tokenizer import comparison_markdown

    paths = [path.absolute() for path in others]
    enter_project()
    typer.echo(comparison_markdown(compare_tokenizers(CORPUS, TOKENIZER, paths)))
