"""Resúmenes de muchos ficheros a la velocidad del disco: un hilo por núcleo, una lectura por dato.

DVC enlaza lo que guarda con su caché: un shard y su objeto son el mismo dato con dos nombres. Se
lee una vez y se calculan a la vez los resúmenes que haga falta.
"""

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

Algorithm = Literal["sha256", "md5"]
_BLOCK = 1 << 20


class Wanted(NamedTuple):
    """Un fichero y el resumen que se le pide."""

    path: Path
    algorithm: Algorithm


def digest_all(wanted: Iterable[Wanted]) -> dict[Wanted, str | OSError]:
    """El resumen hexadecimal de cada uno, o el error que impidió leerlo."""
    groups: dict[tuple[int, int], list[Wanted]] = {}
    found: dict[Wanted, str | OSError] = {}
    for item in dict.fromkeys(wanted):
        try:
            status = item.path.stat()
        except OSError as error:
            found[item] = error
            continue
        groups.setdefault((status.st_dev, status.st_ino), []).append(item)
    # hashlib suelta el GIL con bloques grandes: los hilos trabajan de verdad a la vez.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for items, digests in zip(groups.values(), pool.map(_digest, groups.values()), strict=True):
            for item in items:
                found[item] = digests if isinstance(digests, OSError) else digests[item.algorithm]
    return found


def _digest(items: list[Wanted]) -> dict[str, str] | OSError:
    # MD5 es como DVC nombra sus objetos; aquí no protege nada.
    hashes = {item.algorithm: hashlib.new(item.algorithm, usedforsecurity=False) for item in items}
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    try:
        with items[0].path.open("rb", buffering=0) as stream:
            while count := stream.readinto(buffer):
                for digest in hashes.values():
                    digest.update(view[:count])
    except OSError as error:
        return error
    return {name: digest.hexdigest() for name, digest in hashes.items()}
