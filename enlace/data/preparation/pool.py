"""Trabajo repartido entre procesos, con los resultados en el orden de la entrada."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from typing import Any, TypeVar

from enlace.errors import DataError
from enlace.process import die_with_parent

S = TypeVar("S", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

_PENDING_PER_WORKER = 2


def ordered_map(
    build: Callable[[S], Callable[[T], R]], settings: S, items: Iterable[T], workers: int, task: str
) -> Generator[R, None, None]:
    """Aplica `build(settings)` a cada elemento en `workers` procesos y devuelve todo en su orden.

    Nunca hay más de dos elementos pendientes por proceso, así que la memoria no crece con la
    entrada. Con `workers` = 1 no se crean procesos. Al acabar, bien o mal, no queda ninguno: quien
    la deje a medias debe cerrarla (`contextlib.closing`).

    Args:
        build: función de un módulo (viaja por su nombre) que prepara al trabajador; cada proceso
            la llama una vez.
        settings: lo que `build` necesita, comparable y que quepa en una tubería.
        items: los elementos; se van pidiendo según se sirven.
        workers: procesos.
        task: el trabajo, para el mensaje de error («tokenización»).

    Raises:
        DataError: un proceso muere. Lo que falle en un elemento sale tal cual.
    """
    if workers == 1:
        yield from map(build(settings), items)
        return
    # "spawn": bifurcar un proceso que ya tiene los hilos de los tokenizadores puede bloquearlo.
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
    )
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(_work, build, settings, item))
            if len(pending) > _PENDING_PER_WORKER * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            f"uno de los {workers} procesos de {task} ha muerto (¿sin memoria?); "
            "pon data.workers: 1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def worker_count(workers: int, total_bytes: int, bytes_per_worker: int) -> int:
    """Procesos que merecen la pena: `workers` (0: uno por núcleo) o menos si hay poco que hacer."""
    wanted = workers or len(os.sched_getaffinity(0))
    return max(1, min(wanted, total_bytes // bytes_per_worker))


def _start_worker() -> None:
    die_with_parent()
    # Ctrl-C llega a todo el grupo: el padre decide y cierra, los hijos no imprimen trazas.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"  # un hilo por proceso: los núcleos ya están repartidos


@lru_cache(maxsize=1)
def _worker(build: Callable[[S], Callable[[Any], Any]], settings: S) -> Callable[[Any], Any]:
    return build(settings)


def _work(build: Callable[[S], Callable[[T], R]], settings: S, item: T) -> R:
    result: R = _worker(build, settings)(item)
    return result
