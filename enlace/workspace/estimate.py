"""Estimar un run sin su tarjeta: la orden `enlace estimate` y `make preflight RUN=…`."""

import shutil
from pathlib import Path

from rich.console import Console

from enlace.cards import profile_card
from enlace.config.schema import Config
from enlace.errors import PreflightError
from enlace.files import write_bytes, write_json
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.record import Estimate
from enlace.preflight.estimate.show import show_estimate
from enlace.preflight.picture import estimate_svg

FOLDER = Path("reports/preflight")


def estimate_path(run_name: str, root: Path) -> Path:
    """Dónde se guarda la estimación de un run, con su figura al lado; git no las sigue."""
    return root / FOLDER / f"estimate-{run_name}.json"


def estimate_run(config: Config, root: Path, console: Console | None = None) -> Estimate:
    """Estima, enseña la tabla y guarda el JSON y la figura.

    No escribe veredicto ni sello: no es una medida.

    Raises:
        PreflightError: no cabe en la tarjeta o en el disco, con el remedio.
        HardwareError: la tarjeta del perfil no admite lo que pide.
    """
    card = profile_card(config.hardware.name)
    done = estimate(config, card, shutil.disk_usage(root).free)
    # Primero se enseña: si no se puede guardar, quien esperó la estimación al menos la ve.
    show_estimate(done, console or Console())
    path = estimate_path(config.run_name, root)
    write_json(path, done.model_dump(mode="json"))
    write_bytes(path.with_suffix(".svg"), estimate_svg(done))
    if not done.passed:
        raise PreflightError("; además, ".join(done.reasons))
    return done
