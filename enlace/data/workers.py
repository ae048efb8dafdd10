"""Codificación en hilos, con los lotes en el orden de la entrada.

Los codificadores sueltan el cerrojo de Python mientras trabajan, así que bastan hilos: no hay que
mandar el texto a otro proceso, el vocabulario se carga una vez y la caché de palabras es de todos.
Quien pide los lotes lee y descomprime el corpus entretanto.
"""

import os
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from enlace.data.corpus import CorpusDocument
from enlace.data.encode import EncodedBatch, Encoder

_PENDING_PER_THREAD = 2


def encode_ordered(
    batches: Iterable[list[CorpusDocument]], encoder: Encoder, workers: int
) -> Generator[EncodedBatch, None, None]:
    """Codifica los lotes y los devuelve en su orden, sea cual sea `workers`.

    Nunca hay más de dos lotes pendientes por hilo, así que la memoria no crece con el corpus. Con
    `workers` = 1 todo ocurre en el hilo que llama; con 0, un hilo por núcleo. Quien la deje a
    medias debe cerrarla (`contextlib.closing`): al acabar, bien o mal, no queda ningún hilo.

    Raises:
        DataError: lo que falle al codificar.
    """
    threads = (workers or len(os.sched_getaffinity(0))) - 1  # el que llama es el que falta
    if not threads:
        yield from map(encoder.encode, batches)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="encode")
    pending: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in batches:
            pending.append(pool.submit(encoder.encode, batch))
            if len(pending) > _PENDING_PER_THREAD * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
