"""De los errores de pydantic a frases en español con campo, valor, fichero y remedio."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from enlace.config.schema import Config

_PROBLEMS: dict[str, tuple[str, str]] = {
    "greater_than": ("debe ser mayor que {gt}", "pon un valor mayor que {gt}"),
    "greater_than_equal": ("debe ser al menos {ge}", "pon {ge} o más"),
    "less_than": ("debe ser menor que {lt}", "pon un valor menor que {lt}"),
    "less_than_equal": ("debe ser como mucho {le}", "pon {le} o menos"),
    "int_type": ("debe ser un número entero", "escríbelo sin decimales ni comillas"),
    "int_from_float": ("debe ser un número entero", "escríbelo sin decimales"),
    "float_type": ("debe ser un número", "escríbelo sin comillas"),
    "finite_number": ("debe ser un número finito", "pon un número corriente"),
    "bool_type": ("debe ser true o false", "escribe true o false, sin comillas"),
    "string_type": ("debe ser texto", "escríbelo entre comillas"),
    "literal_error": ("no es una opción conocida", "elige entre {expected}"),
    "tuple_type": ("debe ser una lista", "escribe una lista: [a, b]"),
    "too_short": ("no puede estar vacía", "pon al menos un elemento"),
    "string_too_short": ("no puede estar vacío", "escribe un texto"),
    "string_pattern_mismatch": (
        "solo admite minúsculas, cifras, puntos y guiones",
        "elige un nombre como pretrain-2060",
    ),
    "model_type": ("debe ser un mapa de claves y valores", "escribe una clave por línea"),
}


def explain(error: ValidationError, origin: Callable[[str], str]) -> str:
    """Una frase por fallo; `origin(clave)` dice de qué fichero salió el valor."""
    lines = []
    seen: set[str] = set()
    for item in error.errors():
        path = _dotted(item["loc"])
        if path in seen:
            continue
        seen.add(path)
        lines.append(_one(item, path, origin))
    return "\n        ".join(lines)


def _one(item: Mapping[str, Any], path: str, origin: Callable[[str], str]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    where = origin(path)
    if kind == "value_error":
        prefix = f"{path}: " if path else ""
        return f"{where}: {prefix}{context['error']}"
    if kind == "missing":
        return f"{where}: falta la clave {path}{_describe(path)}; añádela"
    if kind == "extra_forbidden":
        return f"{where}: la clave {path} = {show(item['input'])} no existe; {_suggest(path)}"
    problem, remedy = _PROBLEMS.get(kind, ("no es válido", "revisa el valor"))
    if any(_is_union_branch(part) for part in item["loc"]):
        problem = "debe ser un número entero de pasos o una fracción entre 0 y 1"
        remedy = "prueba 100 o 0.1"
    context = {key: show_bound(value) for key, value in context.items()}
    return (
        f"{where}: {path} = {show(item['input'])}{_describe(path)} {problem.format(**context)}; "
        f"{remedy.format(**context)}"
    )


def show(value: Any) -> str:
    """El valor como se escribiría en YAML, recortado para que quepa en una línea."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def show_bound(value: Any) -> str:
    """Un límite de pydantic sin decimales superfluos y con «o» en lugar de «or»."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).replace(" or ", " o ")


def _dotted(location: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in location if not _is_union_branch(part))


def _is_union_branch(part: int | str) -> bool:
    # Las uniones añaden a la ruta el nombre del tipo que falló («constrained-int»): no es una clave.
    return str(part).startswith("constrained-") or str(part) in ("int", "float")


def _field_owner(path: str) -> tuple[type[BaseModel] | None, str]:
    owner: type[BaseModel] | None = Config
    *parents, leaf = path.split(".")
    for parent in parents:
        field = owner.model_fields.get(parent) if owner else None
        annotation = field.annotation if field else None
        owner = (
            annotation
            if isinstance(annotation, type) and issubclass(annotation, BaseModel)
            else None
        )
    return owner, leaf


def _describe(path: str) -> str:
    owner, leaf = _field_owner(path)
    field = owner.model_fields.get(leaf) if owner else None
    return f" ({field.description})" if field and field.description else ""


def _suggest(path: str) -> str:
    owner, leaf = _field_owner(path)
    names = list(owner.model_fields) if owner else []
    close = difflib.get_close_matches(leaf, names, n=1)
    if close:
        return f"¿querías decir {close[0]}?"
    return f"quítala o usa una de: {', '.join(names)}" if names else "quítala"
