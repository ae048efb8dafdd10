"""El registro crudo: lo que va del proceso que lee a los que entienden."""

from typing import Any, Literal, NamedTuple

Kind = Literal["text", "markdown", "html", "json", "record"]


class RawRecord(NamedTuple):
    """Un trozo de fichero que dará uno o varios documentos.

    `payload` son bytes en UTF-8 (ya traducidos si el fichero venía en otra codificación y sin la
    marca BOM) o, en las filas de parquet, un diccionario. `source` es la ruta relativa a la carpeta
    de origen, con `:línea` en jsonl y parquet y `#parte` en un texto que se ha cortado; `offset`,
    el desplazamiento en el contenido descomprimido. `origin` es el índice en `data.sources` (−1:
    ninguna) y `part`, el número del trozo desde 0. `encoding` es la codificación del fichero.
    """

    kind: Kind
    payload: bytes | dict[str, Any]
    source: str
    offset: int
    origin: int = -1
    part: int = 0
    encoding: str = "utf-8"
