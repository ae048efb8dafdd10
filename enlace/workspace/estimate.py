"""Estimar un run sin su tarjeta: la orden `enlace estimate` y `make preflight RUN=…`."""

import shutil
from pathlib import Path

from rich.console import Console

from enlace.cards import profile_card
from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.files import write_json
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.record import Estimate
from enlace.preflight.estimate.show import show_estimate

FOLDER = Path("reports/preflight")


def estimate_path(run_name: str, root: Path) -> Path:
    """Dónde se guarda la estimación de un run; git no la sigue."""
    return root / FOLDER / f"estimate-{run_name}.json"


def estimate_run(config: Config, root: Path, console: Console | None = None) -> Estimate:
    """Estima, enseña la tabla y guarda el JSON. No escribe veredicto ni sello: no es una medida.

    Raises:
        PreflightError: no cabe en la tarjeta o en el disco, con el remedio.
        HardwareError: la tarjeta del perfil no admite lo que pide.
    """
    card = profile_card(config.hardware.name)
    done = estimate(config, card, shutil.disk_usage(root).free)
    # Primero se enseña: si no se puede guardar, quien esperó la estimación al menos la ve.
    show_estimate(done, console or Console())
    write_json(estimate_path(config.run_name, root), done.model_dump(mode="json"))
    if not done.passed:
        raise PreflightError("; además, ".join(done.reasons))
    return done
