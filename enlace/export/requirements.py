"""Las bibliotecas del extra `export`: solo hacen falta para exportar, y entrenar no las instala."""

from importlib.util import find_spec

from enlace.errors import ExportError

EXTRA = ("gguf", "transformers", "xllamacpp")


def require_extra() -> None:
    """Comprueba que están las bibliotecas con que se exporta y se comprueba.

    Raises:
        ExportError: falta alguna.
    """
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ExportError(
            f"para exportar hace falta {' y '.join(missing)}; `make export` lo instala y exporta "
            "(o: .venv/bin/python -m pip install -e '.[export]' -c .constraints.txt)"
        )
