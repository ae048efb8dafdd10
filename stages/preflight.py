"""Etapa preflight: medir en minutos si el entrenamiento va a funcionar, y negarse si no."""

from rich.console import Console

from enlace.paths import VERDICT, shared_root
from enlace.preflight.gate import run_preflight
from enlace.preflight.neutral import complete_config
from enlace.process import device_lock
from stages.start import stage


def main() -> None:
    """Mide con datos sintéticos, escribe el informe y, solo si pasa, el veredicto y el sello."""
    with stage("preflight") as view:
        values = view.declared_values()
        config = complete_config(values)
        with device_lock(config.hardware.device):
            run_preflight(config, values, shared_root(), VERDICT.parent, Console())


if __name__ == "__main__":
    main()
