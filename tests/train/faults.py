"""Un sistema de ficheros que falla donde se le pide: en la llamada número k de un guardado."""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

CALLS = ("open", "write", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir")
SHORT_WRITE = "escritura corta"
EMPTY_WRITE = "escritura de nada"


@dataclass
class Faults:
    """Cuenta las llamadas al sistema y estropea la `at` (desde 0), y las siguientes si `sticky`.

    `kind` es un código de errno, o una de las dos escrituras que no son un error pero no escriben
    lo pedido. `close` se cierra de verdad antes de fallar, como hace Linux.
    """

    at: int | None = None
    kind: int | str = errno.EIO
    sticky: bool = False
    calls: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def now(self, name: str) -> bool:
        with self._lock:
            index = len(self.calls)
            self.calls.append(name)
            hit = self.at is not None and (index == self.at or (self.sticky and index > self.at))
            hit = hit and (isinstance(self.kind, int) or name == "write")
            if hit:
                self.failed.append(name)
            return hit


def _wrapped(real: Callable[..., Any], name: str, faults: Faults) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if not faults.now(name):
            # Los fsync de verdad no cambian lo que se ve y harían la prueba diez veces más larga.
            return None if name == "fsync" else real(*arguments, **options)
        if name == "close":
            real(*arguments, **options)
        if faults.kind == SHORT_WRITE:
            descriptor, block = arguments
            return real(descriptor, block[: len(block) // 2])
        if faults.kind == EMPTY_WRITE:
            return 0
        assert isinstance(faults.kind, int)
        raise OSError(faults.kind, os.strerror(faults.kind))

    return call


@contextmanager
def faulty_system(faults: Faults) -> Iterator[Faults]:
    """Dentro del bloque, las llamadas de `os` (y `io.open`, con la que se lee) pasan por `faults`.

    Lo que pytest hace entretanto también se cuenta: por eso el bloque solo debe guardar.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, _wrapped(getattr(os, name), name, faults))
        patch.setattr(io, "open", _wrapped(io.open, "io.open", faults))
        yield faults
