"""La orden `enlace` en español: la ayuda y los errores de uso que typer escribe en inglés."""

import re
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from enlace.errors import EnlaceError

PROGRAM = "enlace"

_HELP = (
    (r"^Usage: ", "Uso: "),
    (r"\[OPTIONS\]", "[OPCIONES]"),
    (r"COMMAND \[ARGS\]\.\.\.", "ORDEN [ARGUMENTOS]…"),
    (r"\{([A-Z]+)\}", r"\1"),
    (r"^Arguments:$", "Argumentos:"),
    (r"^Options:$", "Opciones:"),
    (r"^Commands:$", "Órdenes:"),
    (r"Show this message and exit\.", "enseña esta ayuda"),
    (r" {2}\[required\]", ""),
    (r"\[default: ", "[si no se da: "),
    # Del mismo ancho, o la columna de la derecha se movería.
    (r"<str>", "     "),
    (r"<list\[str\]>", "           "),
)
_ERRORS = (
    (r"Missing command\.?", "falta la orden"),
    (r"Missing (?:argument|option|parameter) '(.+)'\.?", r"falta \1"),
    (
        r"No such command '(.*)'\. Did you mean (.+)\?",
        r"no hay ninguna orden «\1»; ¿querías decir \2?",
    ),
    (r"No such command '(.*)'\.?", r"no hay ninguna orden «\1»"),
    (r"No such option: (.+) \(Possible options: (.+)\)", r"no hay ninguna opción \1; están \2"),
    (r"No such option: (.+)", r"no hay ninguna opción \1"),
    (r"Got unexpected extra argument\(s\) \((.+)\)", r"sobra «\1»"),
    (r"Option '(.+)' requires an argument\.?", r"a \1 le falta su valor"),
    (r"Option '(.+)' does not take a value\.?", r"\1 no lleva valor"),
    (r"Invalid value for '(.+)': Input should be a valid integer.*", r"\1 debe ser un entero"),
    (r"Invalid value for '(.+)': Input should be a valid number.*", r"\1 debe ser un número"),
    (
        r"Invalid value for '(.+)': Input should be greater than or equal to (.+)",
        r"\1 debe ser \2 o más",
    ),
    (
        r"Invalid value for '(.+)': Input should be less than or equal to (.+)",
        r"\1 debe ser \2 o menos",
    ),
)


class SpanishGroup(TyperGroup):
    """Un grupo de órdenes con la ayuda en español."""

    def get_help(self, ctx: Any) -> str:
        """La ayuda, ya con sus formatos."""
        return spanish_help(super().get_help(ctx))


class SpanishCommand(TyperCommand):
    """Una orden con la ayuda en español."""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Su primera frase, entera: typer la cortaría con puntos suspensivos."""
        del limit
        return super().get_short_help_str(len(self.help or ""))

    def get_help(self, ctx: Any) -> str:
        """La ayuda, ya con sus formatos."""
        return spanish_help(super().get_help(ctx))


def run_app(app: typer.Typer) -> NoReturn:
    """Ejecuta la orden que piden los argumentos del proceso y acaba con su código.

    Raises:
        EnlaceError: la orden está mal escrita; el mensaje dice qué y dónde está la ayuda.
    """
    try:
        code = app(standalone_mode=False, prog_name=PROGRAM)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        place = PROGRAM if context is None else context.command_path
        message = spanish_error(error.format_message())
        raise EnlaceError(f"{message}; `{place} --help` dice cómo se usa") from None
    # Sin modo autónomo, un `Exit` vuelve como su código y una orden acabada, como None.
    sys.exit(code if isinstance(code, int) else 0)


def spanish_help(text: str) -> str:
    """La ayuda de typer con sus rótulos en español."""
    for pattern, spanish in _HELP:
        text = re.sub(pattern, spanish, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())


def spanish_error(message: str) -> str:
    """Un error de uso de typer en español, o tal cual si no es de los corrientes."""
    for pattern, spanish in _ERRORS:
        if re.fullmatch(pattern, message, flags=re.DOTALL):
            text = re.sub(pattern, spanish, message, flags=re.DOTALL)
            text = re.sub(r"(?<= )'([\w-]+)'(?=[,?])", r"«\1»", text)
            return re.sub(r"(», )?([^,]+), («[^«]+»\?)$", r"\1\2 o \3", text)
    return message
