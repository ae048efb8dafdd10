"""El proceso de entrenamiento frente al sistema: morir con el padre, cerrojos y señales."""

import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from enlace.errors import LockError, UnfinishedError
from enlace.figures import moment

LAUNCHER = "ENLACE_LAUNCHER"
"""Variable con el pid de quien lanza una etapa; la pone su orden en `dvc.yaml`."""
_PR_SET_PDEATHSIG = 1
_LOCK_RECORD_BYTES = 4096
_STDERR = 2
_SIGNAL_EXIT = 128


def die_with_parent(launcher: int | None = None) -> None:
    """Pide al núcleo un SIGTERM para este proceso cuando muera su padre (solo Linux).

    Si DVC muere por SIGKILL o SIGTERM no avisa a sus hijos: el entrenamiento seguiría huérfano y
    un segundo `dvc repro` arrancaría otro sobre la misma carpeta. Si el padre muere justo antes
    de la petición, el aviso no llegaría nunca: por eso se comprueba después.

    Args:
        launcher: el pid de quien lo lanzó, si se sabe; hace falta cuando entre arrancar y llamar
            aquí pasan segundos (importar torch), en los que ya pudo morir. Si no se da, el que
            diga `LAUNCHER` en el entorno, de donde se quita: los hijos tienen otro padre.
    """
    if sys.platform != "linux":
        return
    noted = os.environ.pop(LAUNCHER, "")
    if launcher is None and noted.isdecimal():
        launcher = int(noted)
    parent = os.getppid() if launcher is None else launcher
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


EXIT_FILE = "ENLACE_EXIT_FILE"
"""Variable con el fichero en el que la etapa que falla deja su código: DVC no lo conserva."""


@contextmanager
def noted_exit() -> Iterator[None]:
    """Si el bloque sale con un código distinto de cero, lo deja en el fichero de `EXIT_FILE`."""
    try:
        yield
    except SystemExit as error:
        if (path := os.environ.get(EXIT_FILE)) and isinstance(error.code, int) and error.code:
            with suppress(OSError):
                Path(path).write_text(str(error.code), encoding="ascii")
        raise


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Mantiene `path` cerrado para los demás procesos mientras dura el bloque.

    El cerrojo es el `flock` del fichero, que el núcleo suelta cuando el proceso muere, como sea
    que muera; lo escrito dentro (pid, máquina, inicio) solo sirve para decir quién lo tiene. El
    fichero no se borra al salir: borrarlo dejaría a otro proceso con un cerrojo sobre un fichero
    que ya no está en la carpeta.

    Raises:
        LockError: otro proceso lo tiene; el mensaje dice cuál y desde cuándo.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockError(
                f"{path} está en uso por {_holder(descriptor)}; espera a que termine o detenlo"
            ) from None
        _write_record(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def device_lock(device: str) -> Iterator[None]:
    """Mantiene la GPU de este proceso para él solo; en CPU no hace nada.

    Dos procesos en la misma GPU se quitan memoria y falsean las medidas del preflight. El cerrojo
    es de la máquina y del usuario, no del repositorio: dos clones comparten la tarjeta.

    Args:
        device: `hardware.device`.

    Raises:
        LockError: otro proceso de enlace la usa.
    """
    if device != "cuda":
        yield
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    card = re.sub(r"[^0-9A-Za-z-]", "_", visible)
    with exclusive_lock(Path(tempfile.gettempdir()) / f"enlace-{os.getuid()}-gpu-{card}.lock"):
        yield


@contextmanager
def stopping() -> Iterator[None]:
    """SIGTERM y SIGHUP acaban el bloque como una excepción: lo que haya a medias se deshace.

    Una segunda señal no cuenta: interrumpiría la limpieza.

    Raises:
        UnfinishedError: llegó una; su código es 128 + la señal.
    """
    previous = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }

    def stop(number: int, _frame: FrameType | None) -> None:
        for other in previous:
            signal.signal(other, signal.SIG_IGN)
        raise UnfinishedError(
            f"interrumpido por la señal {number}; no queda nada a medias, repite la orden",
            _SIGNAL_EXIT + number,
        )

    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def delegate(command: Sequence[str]) -> None:
    """Ejecuta `command` y sigue solo si acaba bien; su salida y sus errores son los de este.

    Una señal de parada llega a los dos: aquí se anota y al hijo se le pide que termine, para que
    ninguno sobreviva al otro.

    Raises:
        SystemExit: con el código del hijo, o 128 + la señal que mató a cualquiera de los dos. El
            hijo ya ha dicho por qué.
    """
    received: list[int] = []
    child = subprocess.Popen(command)

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        child.terminate()

    previous = {
        number: signal.signal(number, forward)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        code = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        raise SystemExit(_SIGNAL_EXIT + received[0])
    if code:
        raise SystemExit(code if code > 0 else _SIGNAL_EXIT - code)


def _write_record(descriptor: int) -> None:
    record = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(record).encode("utf-8"), 0)


def _holder(descriptor: int) -> str:
    try:
        record: Any = json.loads(os.pread(descriptor, _LOCK_RECORD_BYTES, 0))
        return f"el proceso {record['pid']} de {record['host']} desde {moment(record['started'])}"
    except (ValueError, KeyError, TypeError):
        return "otro proceso que aún no ha dicho quién es"


class StopSignal:
    """Convierte SIGINT, SIGTERM y SIGHUP en una petición de parar al acabar el paso.

    `requested` es la primera señal recibida, o None. Un segundo SIGINT (otro Ctrl-C) lanza
    KeyboardInterrupt en el acto. Las demás señales no cuentan como segunda: al cerrar una terminal
    llega SIGHUP y, cuando muere el padre, el SIGTERM de `die_with_parent`.
    """

    _NOTICE = b"\nenlace: paro al terminar este paso y guardo; otro Ctrl-C sale ya, sin guardar\n"

    def __init__(self) -> None:
        self.requested: int | None = None
        self._interrupts = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Quien lanzó el proceso con nohup pidió seguir vivo al cerrar la terminal.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        # Una extensión en C puede convertir el KeyboardInterrupt en cualquier otro error.
        swallowed = kind is not None and issubclass(kind, Exception)
        if self._interrupts > 1 and swallowed and not isinstance(error, UnfinishedError):
            raise KeyboardInterrupt from error

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = number
            # os.write y no print: el manejador puede interrumpir un print a medias.
            os.write(_STDERR, self._NOTICE)
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt
