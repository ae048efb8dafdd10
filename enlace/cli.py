"""La orden `enlace`: cada subcomando llama a la biblioteca y escribe lo que devuelve.

Importar este módulo no importa torch; lo que pesa se importa dentro de la orden que lo usa.
"""

import itertools
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from enlace.config.load import PARAMS_FILE, load_config, resolve
from enlace.config.messages import show
from enlace.errors import ConfigError, EnlaceError, user_errors
from enlace.figures import counted
from enlace.workspace.corpus_commands import app as corpus_app
from enlace.workspace.inference_commands import app as inference_app
from enlace.workspace.lineage_commands import app as lineage_app
from enlace.workspace.project import become_dvc, enter_project
from enlace.workspace.serve_commands import app as serve_app
from enlace.workspace.service_commands import app as service_app
from enlace.workspace.tokenizer_commands import app as tokenizer_app
from enlace.workspace.usage import SpanishCommand, SpanishGroup, run_app

app = typer.Typer(
    name="enlace",
    cls=SpanishGroup,
    help="ENLACE: entrenar desde cero un modelo de lenguaje en español con la GPU de casa.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"terminal_width": 100},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(corpus_app)
app.add_typer(inference_app)
app.add_typer(lineage_app)
app.add_typer(serve_app)
app.add_typer(service_app)
app.add_typer(tokenizer_app)
command = partial(app.command, cls=SpanishCommand)

Run = Annotated[str, typer.Argument(metavar="RUN", help="nombre de un fichero de configs/runs")]
Settings = Annotated[
    str, typer.Option("--set", metavar='"k=v k=v"', help="cambios sobre el run, con espacios")
]
WithParent = Annotated[bool, typer.Option("--with-parent", hidden=True)]


def run_command() -> None:
    """Ejecuta la orden que se pide."""
    run_app(app)


def main() -> None:
    """Punto de entrada: un error del usuario es una línea y un código de salida."""
    with user_errors():
        run_command()


@command()
def params(
    run: Run,
    settings: Settings = "",
    keep_edits: Annotated[
        bool, typer.Option("--keep-edits", help="negarse a perder cambios hechos en params.yaml")
    ] = False,
) -> None:
    """Escribe params.yaml a partir de un run y enseña en qué difiere de él."""
    from enlace.workspace.params import set_params, split_settings

    written = set_params(run, split_settings(settings), enter_project(), keep_edits)
    verb = "ya es" if written.kept else "es ahora"
    print(
        f"{PARAMS_FILE} {verb} el run {run}" + (", con estos cambios:" if written.changes else "")
    )
    print_differences(written.changes)
    if written.discarded:
        print("cambios que tenía el anterior y ya no están:")
        print_differences(written.discarded)


@command("check-params")
def check_params() -> None:
    """Enumera los valores de params.yaml que difieren de su run."""
    from enlace.workspace.params import params_differences

    config, changes = params_differences(enter_project())
    print(
        f"run {config.run_name}: "
        + (counted(len(changes), "diferencia") if changes else "sin diferencias")
    )
    print_differences(changes)


@command()
def estimate(run: Run, settings: Settings = "") -> None:
    """Estima, sin la tarjeta, si un run cabría y cuánto tardaría; falla si no cabe."""
    from enlace.workspace.estimate import estimate_run
    from enlace.workspace.params import split_settings

    root = enter_project()
    estimate_run(resolve(run, split_settings(settings), root), root)


@command("require-run", hidden=True)
def require_run(run: Run) -> None:
    """Falla si params.yaml no es del run dado."""
    from enlace.workspace.params import require_run as check

    print_differences(check(run, enter_project()))


@command()
def exp(run: Run, settings: Settings = "", with_parent: WithParent = False) -> None:
    """Lanza un run como experimento de DVC en una carpeta temporal, sin tocar el proyecto."""
    from enlace.workspace.experiment import override_arguments
    from enlace.workspace.params import split_settings

    root = enter_project()
    config = resolve(run, split_settings(settings), root)
    if config.train.init_from:
        from enlace.train.parent import resolve_parent

        config = resolve_parent(config)
    overrides = override_arguments(config)
    become_dvc(["exp", "run", "--temp", *overrides, "evaluate"], with_parent)


@command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def repro(context: typer.Context) -> None:
    """`dvc repro` con el Python de este entorno; muere con quien lo llamó."""
    _repro(context.args, enter_project())


def _repro(arguments: list[str], root: Path) -> NoReturn:
    if "preflight" not in arguments:
        from enlace.workspace.raw import require_text

        require_text(load_config(root / PARAMS_FILE).data.source, root)
    become_dvc(["repro", *arguments], with_parent=True)


@command()
def export(
    folder: Annotated[
        str, typer.Argument(metavar="CARPETA", help="otro modelo terminado, fuera de la tubería")
    ] = "",
    to: Annotated[str, typer.Option(metavar="CARPETA", help="dónde dejarlo exportado")] = "",
) -> None:
    """Exporta el modelo a transformers, llama.cpp y Ollama, y comprueba que es el mismo."""
    from enlace.export.requirements import require_extra

    model = Path(folder).absolute() if folder else None
    out = Path(to).absolute() if to else None
    root = enter_project()
    require_extra()
    if model is None:
        if out is not None:
            raise ConfigError("--to va con la carpeta del modelo: enlace export CARPETA --to OTRA")
        _repro(["--pull", "export"], root)

    from enlace.export.build import export_model

    settings = load_config(root / PARAMS_FILE).export
    out = out or model.with_name(f"{model.name}-exported")
    export_model(model, out, settings, say=print)
    print(f"exportado en {out}; cómo usarlo: {out / 'README.md'}")


@command(hidden=True)
def deps() -> None:
    """Pone al día en dvc.yaml las dependencias de código de cada etapa."""
    from enlace.pipeline import sync_code_dependencies

    changed = sync_code_dependencies(enter_project())
    print("dvc.yaml: " + (f"cambian {', '.join(changed)}" if changed else "sin cambios"))


@command()
def status() -> None:
    """Dice qué run está puesto, hasta dónde ha llegado y qué haría `make train`."""
    from enlace.workspace.report import status_lines

    for line in status_lines(enter_project()):
        print(line)


@command()
def logs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="run (el de params.yaml)")] = "",
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="N", min=0, help="cuántas filas")
    ] = 20,
    keep: Annotated[bool, typer.Option("-f", "--follow", help="seguir hasta Ctrl-C")] = False,
) -> None:
    """Enseña las últimas filas del registro de un entrenamiento."""
    from enlace.workspace.control import follow, pause, readable, table_of, tail
    from enlace.workspace.runs import summarize

    root = enter_project()
    table = table_of(run or load_config(root / PARAMS_FILE).run_name, root)
    steps = summarize(table.parent.resolve()).steps
    rows, end = tail(table, lines)
    try:
        for row in itertools.chain(rows, follow(table, end, pause) if keep else ()):
            print(readable(row, steps), flush=True)
    except KeyboardInterrupt:
        print()


@command()
def stop(
    run: Annotated[str, typer.Argument(metavar="RUN", help="run, si hay varios en marcha")] = "",
) -> None:
    """Para el entrenamiento en marcha después de guardar."""
    from enlace.workspace.control import pause, running
    from enlace.workspace.control import stop as stop_training
    from enlace.workspace.dvclock import dvc_above, dvc_processes, wait_until_gone

    root = enter_project()
    summary = running(run or None, root)
    if summary is None or summary.holder is None:
        busy = dvc_processes(root)
        print(
            (
                f"el run {run} no se está entrenando"
                if run
                else "no hay ningún entrenamiento en marcha"
            )
            + (f"; DVC (proceso {busy[0]}) va por otra etapa: córtala con Ctrl-C" if busy else "")
        )
        return
    print(
        f"{summary.folder.name}: pido al proceso {summary.holder.pid} que guarde y pare…",
        flush=True,
    )
    launchers = dvc_above(summary.holder.pid, root)
    after = stop_training(summary)
    wait_until_gone(launchers, root, pause)
    where = f"guardado en el paso {after.step} de {after.steps}" if after.step else "sin checkpoint"
    print(f"parado, {where}; `make train` sigue donde iba")


@command()
def report() -> None:
    """Compara los runs de esta máquina, terminados o no."""
    from enlace.workspace.report import comparison_lines

    for line in comparison_lines(enter_project()):
        print(line)


@command()
def unlock() -> None:
    """Quita el cerrojo dañado de DVC, si ningún DVC lo está usando."""
    from enlace.workspace.dvclock import RWLOCK
    from enlace.workspace.dvclock import unlock as remove

    problem = remove(enter_project())
    print(
        f"{RWLOCK} {problem}: quitado" if problem else f"{RWLOCK} está bien: no hay nada que hacer"
    )


@command("accept-code")
def accept_code() -> None:
    """Apunta en dvc.lock ediciones de comentarios, docstrings o formato, sin repetir nada."""
    from enlace.workspace.accept import commit, review

    root = enter_project()
    found = review(root)
    if found.accepted:
        commit(list(found.accepted), root)
    for stage, files in found.accepted.items():
        print(f"{stage}: aceptado ({', '.join(files)})")
    if found.refused:
        reasons = "; ".join(f"{stage}: {reason}" for stage, reason in found.refused.items())
        raise EnlaceError(f"no se acepta {reasons}")
    if not found.accepted:
        print("ninguna etapa ejecutada ha cambiado: no hay nada que aceptar")


def print_differences(changes: list[tuple[str, Any, Any]]) -> None:
    """Una línea por diferencia: clave, valor del run y valor de ahora."""
    for key, old, new in changes:
        print(f"  {key}: {show(old)} → {show(new)}")


if __name__ == "__main__":
    main()
