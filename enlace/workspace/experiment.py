"""Un run como experimento de DVC: una opción `-S clave=valor` por hoja, al gusto de Hydra."""

import re
from typing import Any

from enlace.config.load import leaves
from enlace.config.schema import Config

_BEFORE_QUOTE = re.compile(r"(\\*)'")
_AT_END = re.compile(r"(\\+)\Z")
_INTERPOLATION = re.compile(r"(\\*)\$\{")


def override_arguments(config: Config) -> list[str]:
    """Los argumentos `-S clave=valor` que convierten cualquier `params.yaml` en `config`."""
    arguments = []
    for key, value in leaves(config.model_dump(mode="json")):
        arguments += ["-S", f"{key}={quote(value)}"]
    return arguments


def quote(value: Any) -> str:
    r"""Un valor en la gramática de Hydra, que es la que entiende `dvc exp run -S`.

    Los textos van siempre entre comillas simples, para que `true`, `1e3` o `a, b` sigan siendo
    textos. Dentro, solo hace falta escapar la comilla, las barras que la preceden o que cierran el
    texto, y `${`, que OmegaConf tomaría por una interpolación.
    https://hydra.cc/docs/advanced/override_grammar/basic/
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{','.join(quote(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{quote(item)}' for key, item in value.items())}}}"
    text = _BEFORE_QUOTE.sub(r"\1\1\\'", value)
    text = _AT_END.sub(r"\1\1", text)
    text = _INTERPOLATION.sub(r"\1\1\\${", text)
    return f"'{text}'"
