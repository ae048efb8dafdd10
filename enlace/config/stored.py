"""La configuración que guarda un checkpoint o un modelo."""

from pathlib import Path

from pydantic import ValidationError

from enlace.config.later import completed
from enlace.config.schema import Config
from enlace.errors import CheckpointError
from enlace.files import canonical_json


def stored_config(values: object, where: Path) -> Config:
    """La configuración guardada en `where`, también por una versión anterior, validada.

    Raises:
        CheckpointError: esta versión no la entiende.
    """
    known = completed(values) if isinstance(values, dict) else values
    try:
        return Config.model_validate_json(canonical_json(known))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(
            f"{where} guarda una configuración que esta versión no entiende: {key}: {first['msg']}"
        ) from error
