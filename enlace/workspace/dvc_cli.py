"""DVC con una línea en español delante de cada uno de sus errores.

DVC escribe en inglés y no sabe qué orden de aquí lo arregla. Este programa es DVC entero, en el
mismo proceso y con sus códigos de salida; solo mira lo que DVC apunta como error. Al acabar bien,
`runs/<run_name>` señala el run de `params.yaml` aunque DVC lo haya sacado de su caché sin entrenar,
o haya entrenado otro aparte.
"""

import logging
import re
import sys
from pathlib import Path

from enlace.config.load import PARAMS_FILE, load_config
from enlace.errors import EnlaceError, machine_fault, user_errors
from enlace.paths import RAW
from enlace.workspace.runs import RUNS, list_runs, run_of

_UNFINISHED = (75, 129, 130, 143)
"""Códigos de un entrenamiento que ha guardado y puede seguir (enlace/errors.py)."""
_STAGE_EXIT = re.compile(
    r"failed to reproduce '(?P<stage>[^']+)'.*exited with (?P<code>-?\d+)", re.DOTALL
)
_SYSTEM = re.compile(r"\[Errno (?P<number>\d+)\] [^:\n]*(?:: '(?P<path>[^']+)')?")
"""Lo que Python dice de un fallo del sistema, y el fichero si lo nombra."""
_REMEDIES = (
    (
        r"failed to reproduce '(?P<stage>[^']+)': (?:missing data 'source'|.*data/raw)",
        "la etapa {stage} no tiene texto que leer: tráelo con `make corpus SRC=carpeta`, o con "
        "`make pull` si ya lo compartiste",
    ),
    (
        r"dependency '(?P<path>[^']+)' does not exist|"
        r"'(?P<path2>[^']+)' does not exist as an output",
        "falta {path}, que dvc.yaml nombra: si es código que se ha movido, `make deps`; si son "
        "datos, `make pull`",
    ),
    # Antes que el cerrojo dañado: este mensaje de DVC también nombra el rwlock.
    (
        r"Unable to acquire lock|is busy",
        "hay otro DVC en marcha en esta carpeta: espera a que acabe o mira `make status`",
    ),
    (r"RWLock-file", "un corte dejó dañado el cerrojo de DVC; ejecuta `make unlock`"),
    (
        r"'(?:\./)?dvc\.(?P<path>lock|yaml)' (?:is invalid|validation failed)",
        "dvc.{path} no se puede leer (¿un conflicto de git sin resolver?); arréglalo o recupéralo "
        "con `git checkout dvc.{path}`",
    ),
    (
        r"Checkout failed|missing-files|failed to (?:pull|fetch)",
        "falta algo en el almacén: quizá nadie lo ha compartido aún (`make push` en la máquina que "
        "lo tiene)",
    ),
    (
        r"no remote|No remote",
        "no hay ningún almacén: dilo con `dvc remote modify --local storage url CARPETA`",
    ),
    (
        r"[Gg]it user name and email",
        "git no sabe quién eres; dilo con `git config user.name` y `git config user.email`",
    ),
    (r"failed to reproduce '(?P<stage>[^']+)'", "la etapa {stage} no ha podido empezar"),
)
_STOPPED = "la etapa {stage} ha parado antes de acabar; repite la orden y sigue donde iba"
_KILLED = (
    "la etapa {stage} ha muerto por la señal {number}, sin poder decir nada (¿faltó memoria?); "
    "repite la orden: lo guardado sigue ahí"
)
_REFUSED = "la etapa {stage} no ha acabado; el motivo y el remedio están justo encima"
_NOTHING = {
    "push": "todavía no hay nada que compartir: trae texto con `make corpus` o termina un "
    "entrenamiento",
    "pull": "no hay nada apuntado que traer: faltan dvc.lock y data/raw.dvc, que viajan por git",
}
_UNKNOWN = "DVC ha fallado; lo que sigue, en inglés, es su motivo"


class Explainer(logging.Handler):
    """Escribe la explicación en español antes de que DVC escriba su error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Una línea por error."""
        if record.levelno >= logging.ERROR:
            print(f"enlace: {explain(_text(record))}", file=sys.stderr, flush=True)  # noqa: T201


def explain(error: str) -> str:
    """Lo que significa un error de DVC y qué hacer, en una línea."""
    if found := _STAGE_EXIT.search(error):
        code = int(found["code"])
        said = _KILLED if code < 0 else _STOPPED if code in _UNFINISHED else _REFUSED
        return said.format(stage=found["stage"], number=-code)
    if found := _SYSTEM.search(error):
        fault = machine_fault(int(found["number"]))
        if fault is not None:
            return f"{found['path']}: {fault}" if found["path"] else fault
    for pattern, remedy in _REMEDIES:
        if found := re.search(pattern, error, re.DOTALL):
            groups = {key: value for key, value in found.groupdict().items() if value is not None}
            path = next((value for key, value in groups.items() if key.startswith("path")), "")
            return remedy.format(stage=groups.get("stage", ""), path=path)
    return _UNKNOWN


def point_to_current(root: Path) -> None:
    """Hace que `runs/<run_name>` señale el run que corresponde a `params.yaml`, si existe aquí."""
    try:
        config = load_config(root / PARAMS_FILE)
    except EnlaceError:
        return
    summary = run_of(config, list_runs(root))
    link = root / RUNS / config.run_name
    if summary is None or link.resolve() == summary.folder.resolve():
        return
    from enlace.train.folder import point_to

    point_to(summary.folder, link)


def main() -> None:
    """Ejecuta DVC con los argumentos de este proceso."""
    from dvc.cli import main as dvc_main

    logging.getLogger("dvc").handlers.insert(0, Explainer())
    if sys.argv[1:2] in (["push"], ["pull"]) and not _tracked(Path()):
        with user_errors():
            raise EnlaceError(_NOTHING[sys.argv[1]])
    code = dvc_main(sys.argv[1:])
    if code == 0 and sys.argv[1:2] in (["repro"], ["exp"]):
        point_to_current(Path())
    sys.exit(code)


def _tracked(root: Path) -> bool:
    """Si aquí hay algo apuntado en DVC: texto o etapas terminadas."""
    return (root / "dvc.lock").is_file() or (root / RAW).with_suffix(".dvc").is_file()


def _text(record: logging.LogRecord) -> str:
    parts = [record.getMessage()]
    cause = record.exc_info[1] if record.exc_info else None
    while cause is not None:
        parts.append(str(cause))
        cause = cause.__cause__
    return ": ".join(part for part in parts if part)


if __name__ == "__main__":
    main()
