"""Codificación en varios procesos, con la salida en el orden de la entrada."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache

from enlace.data.corpus import CorpusDocument
from enlace.data.encode import EncodedBatch, Encoder, EncoderSettings
from enlace.errors import DataError
from enlace.process import die_with_parent

_PENDING_PER_WORKER = 2


def encode_ordered(
    batches: Iterable[list[CorpusDocument]], encoder: Encoder, workers: int
) -> Generator[EncodedBatch, None, None]:
    """Codifica los lotes con `workers` copias de `encoder` y los devuelve en su orden.

    Nunca hay más de dos lotes pendientes por proceso, así que la memoria no crece con el corpus.
    Con `workers` = 1 trabaja `encoder` mismo, sin crear procesos. Al acabar, bien o mal, no queda
    ninguno: quien la deje a medias debe cerrarla (`contextlib.closing`).

    Raises:
        DataError: lo que falle al codificar, o un proceso muere.
    """
    if workers == 1:
        for batch in batches:
            yield encoder.encode(batch)
        return
    # "spawn": bifurcar un proceso que ya tiene los hilos de los tokenizadores puede bloquearlo.
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
    )
    pending: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in batches:
            pending.append(pool.submit(_encode, encoder.settings, batch))
            if len(pending) > _PENDING_PER_WORKER * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            f"uno de los {workers} procesos de tokenización ha muerto (¿sin memoria?); "
            "pon data.workers: 1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def worker_count(workers: int, corpus_bytes: int, bytes_per_worker: int) -> int:
    """Procesos que merecen la pena: `workers` (0: uno por núcleo) o menos si el corpus es chico."""
    wanted = workers or len(os.sched_getaffinity(0))
    return max(1, min(wanted, corpus_bytes // bytes_per_worker))


def _start_worker() -> None:
    die_with_parent()
    # Ctrl-C llega a todo el grupo: el padre decide y cierra, los hijos no imprimen trazas.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"  # un hilo por proceso: los núcleos ya están repartidos


@cache
def _worker_encoder(settings: EncoderSettings) -> Encoder:
    return Encoder(settings)


def _encode(settings: EncoderSettings, batch: list[CorpusDocument]) -> EncodedBatch:
    return _worker_encoder(settings).encode(batch)
