"""Lo que `enlace status` y `enlace report` cuentan de los runs de esta máquina."""

from pathlib import Path

from enlace.config.load import load_config
from enlace.config.schema import Config
from enlace.errors import EnlaceError
from enlace.figures import WHEN, counted, moment, number
from enlace.paths import MODEL
from enlace.train.artifact import CONFIG
from enlace.workspace.dvclock import RWLOCK, dvc_processes, rwlock_problem
from enlace.workspace.params import params_differences
from enlace.workspace.runs import RUNS, RunSummary, list_runs, run_of

_COLUMNS = ("run", "clave", "paso", "pérdida", "validación", "estado", "fecha")


def status_lines(root: Path) -> list[str]:
    """El estado del proyecto, línea a línea; un `params.yaml` dañado también se cuenta."""
    runs = list_runs(root)
    lines = []
    following = ""
    try:
        config, changes = params_differences(root)
        edited = f" ({counted(len(changes), 'cambio')}: `make check-params`)" if changes else ""
        lines.append(f"params.yaml: run {config.run_name}{edited}")
        following = _next_step(root, runs)
    except EnlaceError as error:
        lines.append(f"params.yaml: {error}")
        following = "nada: corrige antes params.yaml"
    if not runs:
        lines.append(f"{RUNS}/: ningún entrenamiento ha empezado en esta máquina")
    for summary in runs:
        lines += _run_lines(summary)
    problem = rwlock_problem(root)
    if problem:
        lines.append(f"DVC: {RWLOCK} {problem}; ejecuta `make unlock`")
    elif alive := dvc_processes(root):
        lines.append(f"DVC: en marcha (proceso {', '.join(map(str, alive))})")
    lines.append(f"make train: {following}")
    return lines


def comparison_lines(root: Path) -> list[str]:
    """Una tabla con todos los runs, del más antiguo al más reciente."""
    runs = list_runs(root)
    if not runs:
        return [f"{RUNS}/: ningún entrenamiento ha empezado en esta máquina"]
    rows = [list(_COLUMNS)] + [
        [
            summary.name,
            summary.key,
            _progress(summary),
            _loss(summary.loss),
            _loss(summary.val_loss),
            _state(summary),
            summary.when.strftime(WHEN),
        ]
        for summary in runs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _run_lines(summary: RunSummary) -> list[str]:
    lines = [
        f"{summary.folder.name}: {_state(summary)}, checkpoint {_progress(summary)}, "
        f"pérdida {_loss(summary.loss)}, validación {_loss(summary.val_loss)}"
    ]
    if summary.holder:
        holder = summary.holder
        lines.append(
            f"  lo usa el proceso {holder.pid} de {holder.host} desde {moment(holder.started)}"
        )
    lines += [f"  {name} está dañado y no se usará" for name in summary.damaged]
    return lines


def _next_step(root: Path, runs: list[RunSummary]) -> str:
    """Qué haría `make train` con el `params.yaml` actual, si los datos siguen siendo los mismos."""
    config = load_config(root / "params.yaml")
    training = [summary for summary in runs if summary.holder]
    if training:
        return f"esperar: {training[0].folder.name} ya se está entrenando"
    if rwlock_problem(root):
        return "nada hasta `make unlock`"
    if dvc_processes(root):
        return "esperar a que acabe el DVC que está en marcha"
    summary = run_of(config, runs)
    if (summary is None or not summary.finished) and _delivered(root, config):
        return f"nada que entrenar, si nada más ha cambiado: {MODEL} es de esta configuración"
    if summary is None or summary.step is None:
        return f"empezar el run {config.run_name} desde cero ({config.train.steps} pasos)"
    if summary.finished:
        return f"nada que entrenar: {summary.folder.name} está terminado (solo exportar, si falta)"
    return f"seguir {summary.folder.name} desde el paso {summary.step} de {summary.steps}"


def _delivered(root: Path, config: Config) -> bool:
    """Si el modelo que hay, entrenado aquí o traído, es de esta configuración."""
    try:
        return load_config(root / MODEL / CONFIG).identity() == config.identity()
    except EnlaceError:
        return False


def _state(summary: RunSummary) -> str:
    if summary.holder:
        return "entrenando"
    if summary.finished:
        return "terminado"
    return "a medias"


def _progress(summary: RunSummary) -> str:
    if summary.step is None:
        return "ninguno"
    return f"{summary.step}/{summary.steps}"


def _loss(value: float | None) -> str:
    return "–" if value is None else number(value, 4)
