"""Codificación en varios procesos, con la salida en el orden de la entrada."""

from collections.abc import Callable, Generator, Iterable

from enlace.data.corpus import CorpusDocument
from enlace.data.encode import EncodedBatch, Encoder, EncoderSettings
from enlace.data.pool import ordered_map, worker_count

__all__ = ["encode_ordered", "worker_count"]


def encode_ordered(
    batches: Iterable[list[CorpusDocument]], encoder: Encoder, workers: int
) -> Generator[EncodedBatch, None, None]:
    """Codifica los lotes con `workers` copias de `encoder` y los devuelve en su orden.

    Con `workers` = 1 trabaja `encoder` mismo, sin crear procesos (`ordered_map`).

    Raises:
        DataError: lo que falle al codificar, o un proceso muere.
    """
    if workers == 1:
        yield from map(encoder.encode, batches)
        return
    yield from ordered_map(_encode, encoder.settings, batches, workers, "tokenización")


def _encode(settings: EncoderSettings) -> Callable[[list[CorpusDocument]], EncodedBatch]:
    return Encoder(settings).encode
