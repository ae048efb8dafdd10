"""Con qué se escribe el esquema: la sección base, los tipos de los campos y el error de valores."""

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LARGEST_INT = (1 << 63) - 1
"""El mayor entero de torch y numpy: con uno más grande fallarían lejos y sin explicación."""

_NAMED_VALUE = re.compile(r"\b((?:hardware|model|train|data|export)(?:\.\w+)+) = ")


class SettingError(ValueError):
    """Valores que no encajan entre sí; `keys` son los que el mensaje escribe `clave = valor`."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.keys: tuple[str, ...] = tuple(_NAMED_VALUE.findall(message))


def _plain_zero(value: float) -> float:
    # −0.0 vale lo mismo que 0.0 pero se escribe distinto, y daría otra identidad.
    return value + 0.0


def _relative_pattern(pattern: str) -> str:
    parts = pattern.split("/")
    if "" in parts or ".." in parts or any("**" in part and part != "**" for part in parts):
        raise SettingError(
            "debe ser un patrón relativo, sin «..» y con «**» solo como carpeta; "
            "escríbelo como **/*.txt"
        )
    return pattern


Count = Annotated[int, Field(gt=0, le=LARGEST_INT)]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST_INT)]
Positive = Annotated[float, Field(gt=0)]
PositiveOrZero = Annotated[float, Field(ge=0), AfterValidator(_plain_zero)]
Fraction = Annotated[float, Field(ge=0, lt=1), AfterValidator(_plain_zero)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
DigestOrEmpty = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
Text = Annotated[str, Field(min_length=1)]
Pattern = Annotated[str, AfterValidator(_relative_pattern)]
StepsOrFraction = Annotated[CountOrZero | Fraction, Field(union_mode="left_to_right")]


class Section(BaseModel):
    """Base de las secciones: inmutable, estricta y sin claves desconocidas."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    operational: ClassVar[frozenset[str]] = frozenset({"name"})

    def identity_values(self) -> dict[str, Any]:
        """Los valores validados que deciden el resultado, listos para JSON canónico."""
        values: dict[str, Any] = {}
        for key in type(self).model_fields:
            value = getattr(self, key)
            if key in self.operational:
                continue
            values[key] = _identity_value(value)
        return values


def _identity_value(value: Any) -> Any:
    if isinstance(value, Section):
        return value.identity_values()
    return [_identity_value(item) for item in value] if isinstance(value, tuple) else value
