"""Lo que circula por la preparación del texto: documentos, turnos y rechazos con nombre."""

from typing import Literal, NamedTuple

Role = Literal["system", "user", "assistant"]


class Turn(NamedTuple):
    """Un turno de conversación."""

    role: Role
    content: str


class Damage(NamedTuple):
    """Los bytes dañados que el lector quitó o arregló de un texto: cuántos, y dónde el primero."""

    bytes: int
    detail: str


class Document(NamedTuple):
    """Un documento con su procedencia.

    `source` es la ruta relativa a la carpeta de origen (POSIX), con `:línea` en los jsonl. `turns`
    está vacío en el texto corrido; en una conversación, `text` es el contenido de los turnos
    separado por saltos de línea. `origin` es el nombre de la entrada de `data.sources`, o el de la
    primera carpeta, o «general»; `genre` y `license`, los del registro o la licencia de la entrada.
    `damage`, lo que el lector tuvo que arreglar para leerlo.
    """

    text: str
    source: str
    turns: tuple[Turn, ...] = ()
    origin: str = ""
    genre: str = ""
    license: str = ""
    damage: Damage | None = None


class Rejection(NamedTuple):
    """Algo que no entra en el corpus: qué regla lo deja fuera, dónde estaba y por qué.

    `size` son los bytes que ocupaba (UTF-8 o, si no se pudo decodificar, los bytes crudos).
    """

    rule: str
    source: str
    detail: str
    size: int


def conversation(turns: tuple[Turn, ...], source: str) -> Document:
    """El documento de una conversación."""
    return Document("\n".join(turn.content for turn in turns), source, turns)
