"""Errores de usuario: una línea clara, código de salida distinto de cero y sin traza."""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn


class EnlaceError(Exception):
    """Base de los errores que el usuario puede corregir; `exit_code` es el código de salida."""

    exit_code = 2


class ConfigError(EnlaceError):
    """Configuración inválida: dice campo, valor, fichero y remedio."""


class DataError(EnlaceError):
    """Texto, tokenizador o shards que no sirven."""


class CheckpointError(EnlaceError):
    """Checkpoint ausente, incompleto, dañado o de otra identidad."""


class HardwareError(EnlaceError):
    """El perfil de hardware no corresponde a la máquina."""


class PreflightError(EnlaceError):
    """El preflight ha medido que el entrenamiento no debe empezar."""


class ExportError(EnlaceError):
    """Lo exportado no es el modelo, o falta con qué exportarlo o comprobarlo."""


class ServeError(EnlaceError):
    """El servidor no puede empezar o seguir: puerto, motor, token o modelo."""


class LockError(EnlaceError):
    """Otro proceso usa la misma carpeta o la misma GPU."""


class InputsChangedError(EnlaceError):
    """Parámetros, datos o código cambiaron mientras corría la etapa."""


class TrainingAbortedError(EnlaceError):
    """Una regla numérica detuvo el entrenamiento."""

    exit_code = 3

    def __init__(self, message: str, *, reason: str, first: int, last: int) -> None:
        """`reason` es la causa en pocas palabras; de `first` a `last`, los pasos del accidente."""
        super().__init__(message)
        self.reason = reason
        self.first = first
        self.last = last


class DeviceFailedError(EnlaceError):
    """La tarjeta falló o se quedó sin memoria a mitad; lo guardado sigue intacto."""

    exit_code = 4


GO_ON = 75
"""Código de quien para por un límite y puede seguir: EX_TEMPFAIL de sysexits.h."""


class UnfinishedError(EnlaceError):
    """Quedan pasos por entrenar: el trabajo está guardado y la próxima llamada sigue."""

    def __init__(self, message: str, exit_code: int) -> None:
        """`exit_code` es 128 + señal (130 para Ctrl-C, 143 para SIGTERM), o `GO_ON`."""
        super().__init__(message)
        self.exit_code = exit_code


_MACHINE_FAULTS = {
    errno.ENOSPC: "no queda sitio en el disco; libera espacio y repite la orden",
    errno.EFBIG: "el fichero es demasiado grande para ese disco o para `ulimit -f`; usa otro disco",
    errno.EDQUOT: "has agotado tu cuota de disco; libera espacio y repite la orden",
    errno.EROFS: "el disco está montado de solo lectura; usa una carpeta donde puedas escribir",
    errno.EACCES: "no tienes permiso; revisa los permisos y el dueño",
    errno.ENOTDIR: "hay un fichero donde debería haber una carpeta; quítalo y repite la orden",
    errno.EISDIR: "hay una carpeta donde debería haber un fichero; quítala y repite la orden",
    errno.ELOOP: "es un enlace que vuelve a sí mismo; quítalo y repite la orden",
    errno.EPERM: "el sistema no lo permite; revisa los permisos y el dueño",
    errno.EBUSY: "está en uso (¿es un punto de montaje?); desmóntalo y repite la orden",
    errno.EIO: "el disco o la terminal no responden; revísalos y repite la orden",
    errno.EMFILE: "hay demasiados ficheros abiertos; sube el límite con `ulimit -n`",
    errno.ENFILE: "hay demasiados ficheros abiertos en la máquina; cierra programas",
    errno.ENOMEM: "no queda memoria; cierra programas y repite la orden",
    errno.EPIPE: "nadie lee ya la salida; repite la orden sin cortar la tubería",
}
"""Fallos de la máquina y no del programa: no merecen una traza. Cualquier otro sí la da."""


_FAULTS = _MACHINE_FAULTS | {errno.ENOENT: "no existe"}

_RUST_FAULT = re.compile(r"\(os error (\d+)\)")
"""Así acaba lo que dice del sistema una biblioteca escrita en Rust, como safetensors."""


def fault_of(error: Exception) -> str:
    """Qué ha pasado y qué hacer, en español; lo que no se conoce, como lo dijo quien lo vio.

    El sistema lo dice en inglés o en su idioma, y las bibliotecas, siempre en inglés.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _RUST_FAULT.search(str(error))):
        number = int(found[1])
    if number in _FAULTS:
        return _FAULTS[number]
    return (isinstance(error, OSError) and error.strerror) or str(error)


def machine_fault(number: int) -> str | None:
    """Qué ha pasado y qué hacer según el `errno`; None si no es un fallo de la máquina."""
    return _MACHINE_FAULTS.get(number)


def cause_of(error: Exception) -> str:
    """Lo de `fault_of` sin qué hacer, para el mensaje que trae su propio remedio."""
    said = fault_of(error)
    return said.partition("; ")[0] if said in _FAULTS.values() else said


USER_ERROR = "enlace: "
"""Con lo que empieza la línea de un error que ya se explica solo."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Convierte un `EnlaceError` en una línea por stderr y el código de salida que le toca.

    También un fallo de la máquina (disco lleno, sin permiso). En una terminal que no es UTF-8, lo
    que no se puede escribir sale escapado: un mensaje nunca detiene el trabajo.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        _flush()
    except EnlaceError as error:
        _finish(str(error), error.exit_code)
    except KeyboardInterrupt:
        _finish("interrumpido", 130)
    except OSError as error:
        if error.errno not in _MACHINE_FAULTS:
            raise
        # De un renombrado interesa el destino: el origen es un temporal que ya no está.
        path = error.filename if error.filename2 is None else error.filename2
        place = "" if path is None else f"{os.fsdecode(path)}: "
        _finish(place + _MACHINE_FAULTS[error.errno], 1)


def _finish(message: str, code: int) -> NoReturn:
    with suppress(OSError):
        print(f"{USER_ERROR}{message}", file=sys.stderr, flush=True)
    try:
        _flush()
    except OSError:
        # Lo que no se pudo escribir sigue en el búfer, y Python daría una traza al vaciarlo.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sys.exit(code)


def _flush() -> None:
    if sys.stdout is not None:  # con la salida cerrada (>&-) Python no la abre
        sys.stdout.flush()
