"""Lo que toda etapa hace: errores en una línea, morir con DVC, decir qué usa y vigilarlo."""

from collections.abc import Iterator
from contextlib import contextmanager

from enlace.config.load import PARAMS_FILE, differences, load_config, run_path
from enlace.config.messages import show
from enlace.config.views import View, stage_view
from enlace.errors import user_errors
from enlace.process import die_with_parent, noted_exit
from enlace.provenance import InputsGuard, stage_inputs


@contextmanager
def stage(name: str) -> Iterator[View]:
    """Abre la etapa `name` de `dvc.yaml` y cede la vista de los parámetros que declara.

    Si al acabar las entradas ya no son las del principio, la etapa falla: DVC no apunta nada.
    """
    with noted_exit(), user_errors():
        die_with_parent()
        guard = inputs_guard(name)
        view = stage_view(name)
        _announce()
        yield view
        guard.check("Repite la orden: la etapa se hará de nuevo con las entradas de ahora")


def inputs_guard(name: str) -> InputsGuard:
    """La guarda de las entradas que `dvc.yaml` declara para la etapa `name`."""
    return InputsGuard.open(lambda: stage_inputs(name))


def _announce() -> None:
    config = load_config(PARAMS_FILE)
    changes = differences(config, load_config(run_path(config.run_name)))
    print(f"run {config.run_name}" + ("" if changes else ", sin cambios respecto a su fichero"))
    for key, old, new in changes:
        print(f"  {key}: {show(old)} → {show(new)}")
