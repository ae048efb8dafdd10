"""Leer y escribir YAML sin sorpresas: `3e-4` es un número y una clave repetida es un error.

Los escalares se interpretan como en YAML 1.2, que es como DVC lee y escribe `params.yaml`: `No` y
`2024-01-01` son texto, `010` es diez y `1e-05` es un número. Anclas, alias y etiquetas se rechazan:
una configuración no los necesita y con ellos un fichero corto puede agotar la memoria.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from enlace.errors import ConfigError

_MAX_DEPTH = 32
_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[str, str]] = {
    "null": (r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    "bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "int": (r"^(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    "float": (
        r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
}
"""Por tipo, la expresión que lo reconoce y los caracteres por los que puede empezar."""


class _Loader(yaml.SafeLoader):
    """Los escalares de YAML 1.2 y nada más: sin alias, sin etiquetas y sin claves repetidas."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - la base lo declara así
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Como en la base, tras comprobar que el nodo no trae ancla, etiqueta ni demasiado fondo.

        Raises:
            ConfigError: con el fichero y la línea.
        """
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _located(event, "usa un ancla o un alias (& o *)", "repite los valores")
        if tag := getattr(event, "tag", None):
            raise _located(event, f"usa la etiqueta {tag}", "quítala y deja solo el valor")
        if self._depth > _MAX_DEPTH:
            raise _located(event, f"pasa de {_MAX_DEPTH} niveles", "quita niveles")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Como en la base, pero una clave repetida o que no es texto es un error con su línea."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                written = getattr(key_node, "value", None)
                name = f"«{written}»" if isinstance(written, str) else "compuesta"
                raise _located(
                    key_node, f"la clave {name} no es texto", "ponla entre comillas o corrígela"
                )
            if key in seen:
                raise _located(key_node, f"la clave «{key}» está repetida", "deja solo una")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Entero decimal (un cero delante no cambia nada), octal 0o… o hexadecimal 0x…."""
        text = str(node.value).replace("_", "")
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        try:
            return int(text, base)
        except ValueError:
            raise _located(node, "el número tiene demasiadas cifras", "acórtalo") from None


class _Dumper(yaml.SafeDumper):
    """Entrecomilla todo texto que YAML 1.1 o 1.2 leerían como otra cosa."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Como en la base, con comillas dobles si hay saltos Unicode, que ella no escapa."""
        style = '"' if any(c in "\x85\u2028\u2029\ufeff" for c in text) else None
        return self.represent_scalar(_TAG + "str", text, style)


for _kind, (_pattern, _first) in _SCALARS.items():
    for _target in (_Loader, _Dumper):
        _target.add_implicit_resolver(
            _TAG + _kind, re.compile(_pattern), ["" if c == "\0" else c for c in _first]
        )
_Loader.add_constructor(_TAG + "int", _Loader.construct_integer)
_Dumper.add_representer(str, _Dumper.represent_text)


def parse_yaml(text: str, source: str) -> Any:
    """Interpreta `text`; `source` es el nombre que aparece en los mensajes.

    Raises:
        ConfigError: si no es YAML válido, repite una clave o usa anclas, alias o etiquetas.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError(
            f"{source}, línea {line}: hay un carácter de control "
            f"(U+{ord(text[error.position]):04X}); ¿seguro que es un fichero YAML?"
        ) from None
    loader.name = source
    try:
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_message(error, source, text)) from None
    finally:
        loader.dispose()


def read_yaml(path: Path) -> dict[str, Any]:
    """Lee un fichero YAML que debe contener un mapa.

    Raises:
        ConfigError: si falta, no se puede leer, no es UTF-8, no es YAML o no es un mapa.
    """
    value = parse_yaml(_read_text(path), str(path))
    if isinstance(value, dict):
        return value
    found = "está vacío" if value is None else "contiene otra cosa"
    if isinstance(value, list):
        found = "contiene una lista"
    raise ConfigError(f"{path}: {found}; debe contener un mapa de claves y valores (clave: valor)")


def dump_yaml(value: Any) -> str:
    """YAML en bloque, en el orden dado y con tildes; `parse_yaml(dump_yaml(x), …) == x`."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96)


def _read_text(path: Path) -> str:
    try:
        if path.is_fifo():
            # Leerla esperaría para siempre a que alguien escribiera.
            raise ConfigError(f"{path}: es una tubería; indica un fichero YAML")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        problem = "no existe; revisa la ruta"
    except IsADirectoryError:
        problem = "es una carpeta; indica un fichero YAML"
    except PermissionError:
        problem = "no tienes permiso para leerlo; revisa los permisos"
    except UnicodeDecodeError as error:
        problem = f"no es texto UTF-8 (byte {error.start}); guárdalo como UTF-8"
    except (OSError, ValueError):
        problem = "no se puede leer; revisa la ruta"
    raise ConfigError(f"{path}: {problem}")


def _located(node: Any, problem: str, remedy: str) -> ConfigError:
    mark = node.start_mark
    return ConfigError(f"{mark.name}, línea {mark.line + 1}: {problem}; {remedy}")


def _syntax_message(error: yaml.MarkedYAMLError, source: str, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"{source}: no es YAML válido; revisa la sangría y las comillas"
    lines = text.splitlines()
    # Al final del fichero no hay línea que enseñar: la culpable es la última escrita.
    number = min(mark.line, max(len(lines) - 1, 0))
    shown = lines[number].strip()[:60] if lines else ""
    remedy = "revisa la sangría, los dos puntos y las comillas de esa línea y de la anterior"
    if "'\\t'" in (error.problem or ""):
        remedy = "sangra con espacios: los tabuladores no valen"
    if isinstance(error, yaml.composer.ComposerError):
        remedy = "deja un solo documento, sin «---» en medio"
    return f"{source}, línea {number + 1}: «{shown}» no es YAML válido; {remedy}"
