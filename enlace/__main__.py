"""La orden `enlace` desde el primer instante: Ctrl-C mientras se carga también es una línea."""

from enlace.errors import user_errors


def main() -> None:
    """Carga las órdenes y ejecuta la que se pide."""
    with user_errors():
        # Cargarlas tarda un par de segundos en una máquina lenta: dentro, para que un Ctrl-C de
        # entonces no sea una traza de Python.
        from enlace.cli import run_command

        run_command()


if __name__ == "__main__":
    main()
