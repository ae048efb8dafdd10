"""Markdown: se queda como está, menos la cabecera de metadatos.

Las marcas (`#`, `*`, enlaces) son texto que un modelo verá y escribirá, y quitarlas rompería listas
y tablas. La cabecera es YAML o TOML entre dos líneas de guiones o de signos más, en lo más alto.
"""

import re

_FENCES = {"---": ("---", "..."), "+++": ("+++",)}
_MAX_LINES = 200
_METADATA = re.compile(r"\s*$|\s*#|\s+\S|- |-$|[\w.\"'-]+\s*[:=]|[\[\]})]")
"""Lo que puede ser una línea de YAML o TOML: vacía, comentario, sangrada, lista o `clave: …`."""


def without_front_matter(text: str) -> str:
    """`text` sin su cabecera de metadatos; intacto si lo que abre no es una cabecera."""
    lines = text.split("\n", _MAX_LINES)
    closing = _FENCES.get(lines[0].rstrip())
    if closing is None:
        return text
    for number, line in enumerate(lines[1:_MAX_LINES], start=1):
        if line.rstrip() in closing:
            return "\n".join(lines[number + 1 :]) if number > 1 else text
        if not _METADATA.match(line):
            return text
    return text
