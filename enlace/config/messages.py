"""De los errores de pydantic a frases en español con campo, valor, fichero y remedio."""

import difflib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from enlace.config.fields import SettingError
from enlace.config.schema import Config

_SHOWN_CHARACTERS = 60
_SHOWN_PROBLEMS = 8
_FLOAT_PROBLEM = ("debe ser un número", "escríbelo con cifras y sin comillas")
_INT_PROBLEM = ("debe ser un número entero", "escríbelo sin decimales ni comillas")
_MAP_PROBLEM = ("debe ser un mapa de claves y valores", "escribe una clave por línea")
_STEPS_PROBLEM = (
    "debe ser un número entero de pasos o una fracción menor que 1",
    "escribe, por ejemplo, 100 o 0.1",
)

_PROBLEMS: dict[str, tuple[str, str]] = {
    "greater_than": ("debe ser mayor que {gt}", "pon un valor mayor"),
    "greater_than_equal": ("debe ser al menos {ge}", "pon {ge} o más"),
    "less_than": ("debe ser menor que {lt}", "pon un valor menor"),
    "less_than_equal": ("debe ser como mucho {le}", "pon {le} o menos"),
    "int_type": _INT_PROBLEM,
    "int_from_float": _INT_PROBLEM,
    "int_parsing_size": _INT_PROBLEM,
    "float_type": _FLOAT_PROBLEM,
    "float_parsing": _FLOAT_PROBLEM,
    "finite_number": ("debe ser un número finito", "pon un número corriente"),
    "bool_type": ("debe ser true o false", "escribe true o false, sin comillas"),
    "string_type": ("debe ser texto", "escríbelo entre comillas"),
    "string_unicode": ("no es texto Unicode válido", "quita los caracteres \\ud800–\\udfff"),
    "literal_error": ("no es una opción conocida", "elige entre {expected}"),
    "tuple_type": ("debe ser una lista", "escribe una lista, como [a, b]"),
    "too_short": ("es una lista vacía", "pon al menos un elemento"),
    "string_too_short": ("está vacío", "escribe algún texto"),
    "string_too_long": ("es demasiado largo", "usa como mucho {max_length} caracteres"),
    "string_pattern_mismatch": (
        "solo admite minúsculas sin tilde, cifras, puntos y guiones",
        "elige un nombre como pretrain-2060",
    ),
    "model_type": _MAP_PROBLEM,
}


def explain(error: ValidationError, origin: Callable[[str], str]) -> str:
    """Una frase por fallo; `origin(clave)` dice su fichero, y `origin("")`, el principal.

    `clave` es una ruta con puntos, que puede acabar en el índice de un elemento de lista.
    """
    lines: list[str] = []
    seen: set[str] = set()
    for item in error.errors():
        path = _dotted(item["loc"])
        # Cada rama de una unión da un fallo de la misma clave, y una lista con un elemento malo
        # falla también entera: basta con contar el primero.
        if not any(known == path or known.startswith(f"{path}.") for known in seen):
            lines.append(_sentence(item, path, origin))
        seen.add(path)
    if (left := len(lines) - _SHOWN_PROBLEMS) > 1:
        lines[_SHOWN_PROBLEMS:] = [f"… y {left} fallos más; corrige estos y vuelve a probar"]
    return "\n        ".join(lines)


def show(value: Any) -> str:
    """El valor como se escribiría en YAML, en una línea y recortado."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _sentence(item: Mapping[str, Any], path: str, origin: Callable[[str], str]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, SettingError) and cause.keys:
        return _conflict(cause, origin)
    if kind == "missing":
        return f"{origin(path)}: falta la clave {path}{_describe(path)}; añádela"
    if kind == "extra_forbidden":
        return f"{origin(path)}: la clave {path} = {show(item['input'])} no existe; {suggest(path)}"
    if isinstance(cause, SettingError):
        tail = str(cause)
    else:
        problem, remedy = _PROBLEMS.get(kind, ("no vale", "revisa el valor"))
        if _is_union(item["loc"]):
            problem, remedy = _STEPS_PROBLEM
        shown = {key: show_bound(value) for key, value in context.items()}
        tail = f"{problem}; {remedy}".format(**shown)
    return f"{origin(path)}: {path} = {show(item['input'])}{_describe(path)} {tail}"


def _conflict(error: SettingError, origin: Callable[[str], str]) -> str:
    files: dict[str, list[str]] = {}
    for key in error.keys:
        files.setdefault(origin(key), []).append(key)
    if len(files) == 1:
        return f"{next(iter(files))}: {error}"
    sources = "; ".join(f"{' y '.join(keys)}, de {file}" for file, keys in files.items())
    return f"{origin('')}: {error} (valores: {sources})"


def show_bound(value: Any) -> str:
    """Un límite de pydantic sin decimales superfluos, y sus opciones sin comillas ni «or»."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).replace("'", "").replace(" or ", " o ")


def _dotted(location: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in location if not _is_union((part,)))


def _is_union(location: Sequence[int | str]) -> bool:
    # Una unión añade a la ruta el nombre del tipo que falló («constrained-int»): no es una clave.
    return any(str(part).startswith(("constrained-", "function-")) for part in location)


def _field_owner(path: str) -> tuple[type[BaseModel] | None, str]:
    owner: type[BaseModel] = Config
    *parents, leaf = path.split(".")
    for parent in parents:
        field = owner.model_fields.get(parent)
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return None, leaf
        owner = annotation
    return owner, leaf


def _describe(path: str) -> str:
    owner, leaf = _field_owner(path)
    field = owner.model_fields.get(leaf) if owner else None
    return f" ({field.description})" if field and field.description else ""


def suggest(path: str) -> str:
    """Remedio para una clave que no existe: la más parecida de su sección, o las que hay."""
    owner, leaf = _field_owner(path)
    names = list(owner.model_fields) if owner else []
    close = difflib.get_close_matches(leaf, names, n=1)
    if close and close[0] != leaf:
        return f"¿querías decir {close[0]}?"
    if close:
        return f"escribe {leaf} dentro de su sección, sin puntos en el nombre"
    return f"quítala o usa una de estas: {', '.join(names)}" if names else "quítala"
