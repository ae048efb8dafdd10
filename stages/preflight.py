"""Etapa preflight: medir en minutos si el entrenamiento va a funcionar, y negarse si no.

Sin opciones es la etapa de DVC. Con `--require` es la puerta que llama `pretrain`: comprueba el
veredicto y el sello, y mide si falta el sello. Con `--search` busca el mejor micro-batch. Las dos
últimas no escriben ni veredicto ni informe.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from enlace.config.load import PARAMS_FILE, differences, load_config, run_path
from enlace.config.messages import show
from enlace.config.views import stage_view
from enlace.errors import ConfigError, LockError, user_errors
from enlace.paths import SHARDS, VERDICT, private_folder, shared_root
from enlace.preflight.gate import require_preflight, run_preflight
from enlace.preflight.isolate import measure_isolated
from enlace.preflight.neutral import complete_config
from enlace.preflight.search import params_command, search_micro_batch, show_search
from enlace.process import device_lock, die_with_parent, exclusive_lock, stopping
from enlace.workspace.runs import training_now
from stages.start import stage

# Los shards no son una dependencia: si están, la lectura se mide con ellos; si no, se inventa, y el
# informe lo dice. No deciden el veredicto.
measure = partial(measure_isolated, shards=SHARDS)


def main(arguments: list[str]) -> None:
    """Despacha la opción."""
    options = {(): _stage, ("--require",): _require, ("--search",): _search}
    with user_errors():
        if tuple(arguments) not in options:
            raise ConfigError(
                f"stages.preflight no entiende {' '.join(arguments)}; usa --require, --search o "
                "nada"
            )
    options[tuple(arguments)]()


def _stage() -> None:
    """Mide con datos sintéticos, escribe el informe y, solo si pasa, el veredicto y el sello."""
    # Aquí y no arriba: estimar importa torch, y la puerta del entrenamiento no estima.
    from enlace.preflight.estimate.error import compare

    with stage("preflight") as view, stopping():
        values = view.declared_values()
        config = complete_config(values)
        with quiet_device(config.hardware.device):
            run_preflight(
                config, values, shared_root(), VERDICT.parent, Console(), measure, compare
            )


def _require() -> None:
    """Deja pasar solo si estos valores tienen veredicto y esta máquina, sello."""
    with user_errors(), stopping():
        die_with_parent()
        values = stage_view("preflight").declared_values()
        config = complete_config(values)
        require_preflight(
            config, values, shared_root(), VERDICT, Console(), measure, lock=quiet_device
        )


def _search() -> None:
    """Busca el mayor y el más rápido micro-batch, y dice la orden que lo pone."""
    with user_errors(), stopping():
        die_with_parent()
        config = complete_config(stage_view("preflight").declared_values())
        current = load_config(PARAMS_FILE)
        base = load_config(run_path(current.run_name))
        changes = [(key, show(value)) for key, _, value in differences(current, base)]
        with quiet_device(config.hardware.device):
            found = search_micro_batch(
                config,
                lambda attempt: measure(attempt, _scratch(), probe=False),
                lambda rows: print(f"probando hardware.micro_batch={rows}…", flush=True),
            )
        show_search(
            found,
            config.hardware.micro_batch,
            partial(params_command, current.run_name, changes),
            Console(),
        )


@contextmanager
def quiet_device(device: str) -> Iterator[None]:
    """El dispositivo para medir, sin nadie más.

    En la GPU cierra la tarjeta. En CPU pueden entrenar varios a la vez, pero medir entonces daría
    otra velocidad: se mira que en este proyecto nadie entrene ni mida.

    Raises:
        LockError: otro proceso lo usa; dice cuál.
    """
    if device != "cpu":
        with device_lock(device):
            yield
        return
    with exclusive_lock(_scratch() / "lock"):
        for summary in training_now(shared_root()):
            assert summary.holder is not None
            raise LockError(
                f"{summary.folder.name} se está entrenando (proceso {summary.holder.pid}, desde "
                f"{summary.holder.started}) y la medida saldría falsa; espera a que acabe o páralo "
                "con make stop, que guarda, y repite la orden"
            )
        yield


def _scratch() -> Path:
    return private_folder() / "preflight"


if __name__ == "__main__":
    main(sys.argv[1:])
