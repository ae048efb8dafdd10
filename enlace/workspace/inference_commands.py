"""Las órdenes que usan el modelo, que `enlace` ofrece junto a las demás."""

import secrets
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from enlace.config.load import PARAMS_FILE, load_config
from enlace.workspace.project import enter_project
from enlace.workspace.usage import SpanishCommand

app = typer.Typer(rich_markup_mode=None)
command = partial(app.command, cls=SpanishCommand)

_OURS = "(lo que diga params.yaml)"
_SEEDS = 2**32

Length = Annotated[
    int | None, typer.Option("--max-new-tokens", metavar="N", min=1, help=f"tokens nuevos {_OURS}")
]
Temperature = Annotated[
    float | None, typer.Option(metavar="X", min=0.0, help=f"0: siempre el más probable {_OURS}")
]
TopK = Annotated[int | None, typer.Option(metavar="N", min=0, help=f"candidatos; 0: todos {_OURS}")]
TopP = Annotated[
    float | None,
    typer.Option(metavar="X", min=0.0, max=1.0, help=f"probabilidad acumulada; 1: toda {_OURS}"),
]
MinP = Annotated[
    float | None,
    typer.Option(metavar="X", min=0.0, max=1.0, help=f"mínimo respecto al mejor; 0: nada {_OURS}"),
]
Penalty = Annotated[
    float | None, typer.Option(metavar="X", help=f"penaliza lo repetido; 1: nada {_OURS}")
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXTO", help="parar ahí; se puede repetir")
]


@command()
def generate(
    prompt: Annotated[str, typer.Argument(metavar="TEXTO", help="principio que se continúa")],
    max_new_tokens: Length = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = None,
    stop: Stop = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="misma semilla, mismo texto")] = 0,
    model: Annotated[str, typer.Option(metavar="CARPETA", help="modelo (checkpoints/model)")] = "",
) -> None:
    """Continúa un texto con el modelo entrenado."""
    given = Path(model).absolute() if model else None
    root = enter_project()

    from enlace.workspace import generate as library
    from enlace.workspace.chat import standard_terminal

    request = library.build_request(
        load_config(root / PARAMS_FILE),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        stops=tuple(stop or ()),
    )
    seed = library.check_seed(seed)
    library.check_utf8(prompt)
    engine = library.open_for_use(given)
    terminal = standard_terminal()
    note = library.continue_text(engine, prompt, request, seed, terminal.write)
    terminal.write("\n")
    if note:
        terminal.note(note)


@command()
def chat(
    folder: Annotated[
        str, typer.Argument(metavar="CARPETA", help="modelo, exportación o checkpoint")
    ] = "",
    system: Annotated[
        str, typer.Option(metavar="TEXTO", help="instrucciones para toda la conversación")
    ] = "",
    max_new_tokens: Length = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = None,
    stop: Stop = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="para repetir lo mismo (al azar)")
    ] = None,
) -> None:
    """Habla con el modelo entrenado o, si todavía no conversa, le da textos que continuar."""
    given = Path(folder).absolute() if folder else None
    root = enter_project()

    from enlace.workspace import chat as terminal
    from enlace.workspace import generate as library

    request = library.build_request(
        load_config(root / PARAMS_FILE),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        stops=tuple(stop or ()),
    )
    seed = secrets.randbelow(_SEEDS) if seed is None else library.check_seed(seed)
    library.check_utf8(system)
    engine = library.open_for_use(given)
    terminal.chat(engine, request, seed, terminal.standard_terminal(), system)
