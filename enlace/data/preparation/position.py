"""Por dónde va la lectura de unos ficheros, que solo se sabe por el último registro que salió."""

from collections.abc import Mapping

_EXPANSION = 3.0
"""Lo que crece un texto comprimido al abrirlo; solo para adivinar por dónde va la lectura."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".parquet")


class Position:
    """Cuánto se ha leído de unos ficheros."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """`sizes`: los bytes en disco de cada fichero, en el orden en que se leen."""
        self.total = sum(sizes.values())
        self._sizes = sizes
        self._starts: dict[str, int] = {}
        start = 0
        for name, size in sizes.items():
            self._starts[name] = start
            start += size

    def share(self, source: str, offset: int) -> float:
        """La parte de los bytes en disco que queda atrás cuando sale un registro, entre 0 y 1.

        `source` es «fichero», «fichero:línea» o «fichero#parte»; `offset` va sobre el contenido
        descomprimido. De un comprimido se supone que crece tres veces.
        """
        name = source
        while name and name not in self._sizes:
            name = name[: max(name.rfind(":"), name.rfind("#"), 0)]
        if not name:
            return 0.0
        expansion = _EXPANSION if name.lower().endswith(_COMPRESSED) else 1.0
        inside = min(self._sizes[name], int(offset / expansion))
        return (self._starts[name] + inside) / max(self.total, 1)


def expanded_size(sizes: Mapping[str, int]) -> int:
    """Los bytes de texto que se espera encontrar en unos ficheros, abiertos los comprimidos."""
    return sum(
        int(size * (_EXPANSION if name.lower().endswith(_COMPRESSED) else 1))
        for name, size in sizes.items()
    )
