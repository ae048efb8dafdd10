"""Pasar de un run a `params.yaml` sin perder en silencio lo que alguien cambió a mano."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.load import (
    PARAMS_FILE,
    differences,
    load_config,
    resolve,
    run_path,
    write_params,
)
from enlace.config.schema import Config
from enlace.errors import ConfigError, LockError
from enlace.workspace.runs import training_now

Difference = tuple[str, Any, Any]


class Written(NamedTuple):
    """Resultado de `set_params`: la configuración y las diferencias que hay que enseñar."""

    config: Config
    changes: list[Difference]
    """Lo que difiere del fichero del run: (clave, valor del run, valor escrito)."""
    discarded: list[Difference]
    """Cambios propios del `params.yaml` anterior que ya no están: (clave, valor del run, suyo)."""
    kept: bool
    """Si `params.yaml` ya decía lo mismo y no se ha tocado."""


def split_settings(text: str) -> list[str]:
    """Separa "train.lr=3e-4 data.include=[a b]" en sus parejas clave=valor.

    Un valor puede llevar espacios y comillas: una pareja acaba donde empieza otra clave.
    """
    return [item for item in re.split(r"\s+(?=[A-Za-z_][\w.]*=)", text.strip()) if item]


def params_differences(root: Path) -> tuple[Config, list[Difference]]:
    """`params.yaml` y lo que difiere del fichero de su run: (clave, valor del run, valor suyo).

    Raises:
        ConfigError: `params.yaml` o su run no son válidos.
    """
    config = load_config(root / PARAMS_FILE)
    return config, differences(config, load_config(run_path(config.run_name, root)))


def set_params(run: str, settings: list[str], root: Path, keep_edits: bool) -> Written:
    """Escribe en `params.yaml` el run `run` con los cambios `settings`.

    Con `keep_edits`, se niega a descartar los cambios de un `params.yaml` que ya es de ese run.

    Raises:
        ConfigError: run o cambios inválidos, o cambios que se perderían.
        LockError: hay un entrenamiento en marcha, que necesita `params.yaml` como está.
    """
    previous = _previous(root)
    config = _with_parent(resolve(run, settings, root), previous)
    changes = differences(config, load_config(run_path(run, root)))
    if previous is not None and previous[0] == config:
        return Written(config, changes, [], kept=True)
    discarded = [] if previous is None else _lost(config, *previous)
    if keep_edits and not settings and previous is not None and previous[0].run_name == run:
        names = ", ".join(key for key, _, _ in discarded)
        raise ConfigError(
            f"{PARAMS_FILE} ya es del run {run} y difiere de su fichero en {names}; usa la orden "
            f"sin RUN para seguir con {PARAMS_FILE} como está, o `make params RUN={run}` para "
            "volver al run"
        )
    for summary in training_now(root):
        raise LockError(
            f"{summary.folder.name} se está entrenando y necesita {PARAMS_FILE} como está; espera "
            "a que acabe, páralo con `make stop` o prueba lo nuevo aparte con `make exp`"
        )
    write_params(config, settings, root)
    return Written(config, changes, discarded, kept=False)


def require_run(run: str, root: Path) -> list[Difference]:
    """Comprueba que `params.yaml` es del run `run`; devuelve en qué difiere de su fichero.

    Raises:
        ConfigError: es de otro run.
    """
    config, changes = params_differences(root)
    if config.run_name != run:
        raise ConfigError(
            f"{PARAMS_FILE} es del run {config.run_name}, no de {run}, y no lo cambio sin que lo "
            f"pidas; ejecuta `make params RUN={run}` y repite (para volver después: "
            f"`make params RUN={config.run_name}`)"
        )
    return changes


def _with_parent(config: Config, previous: tuple[Config, list[Difference]] | None) -> Config:
    """La configuración con el padre resuelto, si tiene.

    Cuando lo mismo que se pide ya ha entregado su resultado en la carpeta de la que partía
    (`checkpoints/state`), o esa carpeta ya no está, el padre sigue siendo el apuntado.
    """
    if not config.train.init_from:
        return config
    from enlace.train.parent import resolve_parent

    known = None
    if previous is not None and previous[0].train.init_from == config.train.init_from:
        known = previous[0].train
    return resolve_parent(config, known)


def _previous(root: Path) -> tuple[Config, list[Difference]] | None:
    """El `params.yaml` actual y sus diferencias, o None si no se puede leer: se va a reemplazar."""
    try:
        return params_differences(root)
    except ConfigError:
        return None


def _lost(config: Config, previous: Config, edits: list[Difference]) -> list[Difference]:
    same_run = previous.run_name == config.run_name
    changed = {key for key, _, _ in differences(config, previous)}
    return [item for item in edits if not same_run or item[0] in changed]
