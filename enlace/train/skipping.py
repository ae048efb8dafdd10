"""Un flujo de lotes al que se le han quitado algunos."""

from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Any

from enlace.data.streams import Batch, TokenStream
from enlace.errors import CheckpointError

_KEY = "skipped"


class SkippingStream:
    """Los lotes de otro flujo, en su orden, menos los de `skipped`.

    El lote del paso n es el n-ésimo de los que quedan: una función pura de (semilla, n, skipped).

    Args:
        inner: el flujo entero.

    Attributes:
        skipped: números de lote quitados, en orden creciente.
    """

    def __init__(self, inner: TokenStream) -> None:
        self.skipped: list[int] = []
        self._inner = inner

    @property
    def fingerprint(self) -> str:
        """La huella de los datos."""
        return self._inner.fingerprint

    def index(self, step: int) -> int:
        """El número de lote, en el flujo entero, que toca en el paso `step`."""
        index = step
        for skipped in self.skipped:
            if skipped > index:
                break
            index += 1
        return index

    def skip(self, indices: Iterable[int]) -> None:
        """Quita unos lotes más."""
        for index in indices:
            insort(self.skipped, index)

    def batch(self, step: int) -> Batch:
        """El lote del paso `step` (desde 0)."""
        return self._inner.batch(self.index(step))

    def state_dict(self, step: int) -> dict[str, Any]:
        """El estado, en JSON, cuando el próximo lote es el del paso `step`."""
        return self._inner.state_dict(self.index(step)) | {_KEY: list(self.skipped)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Comprueba que un estado es de estos datos y quita los lotes que él quitaba.

        Raises:
            CheckpointError: es de otros datos, o está dañado.
        """
        rest = dict(state)
        skipped = rest.pop(_KEY, None)
        if not isinstance(skipped, list) or not all(type(each) is int for each in skipped):
            raise CheckpointError("el checkpoint no dice qué lotes se saltaron; usa uno anterior")
        if skipped != sorted({each for each in skipped if each >= 0}):
            raise CheckpointError(
                "los lotes saltados del checkpoint no están en orden; está dañado"
            )
        self._inner.check_state(rest)
        self.skipped = skipped
