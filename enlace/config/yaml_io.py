"""Leer y escribir YAML sin sorpresas: `3e-4` es un número y una clave repetida es un error."""

import re
from pathlib import Path
from typing import Any

import yaml

from enlace.errors import ConfigError

_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
         |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
         |[-+]?[0-9]+[eE][-+]?[0-9]+
         |[-+]?\.(?:inf|Inf|INF)
         |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 con los flotantes de YAML 1.2 (`3e-4`, `1e-05`) y sin claves repetidas."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - la base lo declara así
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Como en la base, pero una clave repetida es un error con su línea."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConfigError(
                    f"{node.start_mark.name}, línea {key_node.start_mark.line + 1}: la clave "
                    f"{key!r} no es texto; escríbela entre comillas o corrige el nombre"
                )
            if key in seen:
                raise ConfigError(
                    f"{node.start_mark.name}, línea {key_node.start_mark.line + 1}: la clave "
                    f"«{key}» está repetida; deja solo una"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def parse_yaml(text: str, source: str) -> Any:
    """Interpreta `text`; `source` es el nombre que aparece en los mensajes.

    Raises:
        ConfigError: si no es YAML válido o repite una clave.
    """
    loader = _Loader(text)
    loader.name = source
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", línea {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(
            f"{source}{where}: no es YAML válido ({problem}); revisa la sangría y las comillas"
        ) from error
    finally:
        loader.dispose()


def read_yaml(path: Path) -> dict[str, Any]:
    """Lee un fichero YAML que debe contener un mapa.

    Raises:
        ConfigError: si falta, no se puede leer, no es UTF-8, no es YAML o no es un mapa.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no existe; revisa la ruta") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no se puede leer ({error})") from error
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: debe contener un mapa de claves y valores, y está vacío o no")
    return value


def dump_yaml(value: Any) -> str:
    """YAML en bloque, en el orden dado y con tildes; `load(dump(x)) == x`."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=96)
