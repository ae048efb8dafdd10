"""Lo que toda etapa hace al empezar: errores en una línea, morir con DVC y decir qué va a usar."""

from collections.abc import Iterator
from contextlib import contextmanager

from enlace.config.load import PARAMS_FILE, differences, load_config, run_path
from enlace.config.messages import show
from enlace.config.views import View, stage_view
from enlace.errors import user_errors
from enlace.process import die_with_parent


@contextmanager
def stage(name: str) -> Iterator[View]:
    """Abre la etapa `name` de `dvc.yaml` y cede la vista de los parámetros que declara."""
    with user_errors():
        die_with_parent()
        view = stage_view(name)
        _announce()
        yield view


def _announce() -> None:
    config = load_config(PARAMS_FILE)
    changes = differences(config, load_config(run_path(config.run_name)))
    print(f"run {config.run_name}" + ("" if changes else ", sin cambios respecto a su fichero"))
    for key, old, new in changes:
        print(f"  {key}: {show(old)} → {show(new)}")
