"""Dar una vida, quitarla según el plan y contar cómo fue.

El arnés importa torch una vez y bifurca un proceso por vida (no calcula nada él mismo, así que la
bifurcación es limpia); algunas vidas son procesos enteramente nuevos.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# El optimizador lo importa al crearse, y tarda más que un entrenamiento de estos: una vez basta.
import torch._dynamo  # noqa: F401

from tests.chaos.life import MARKS, live
from tests.chaos.marks import Mark, Marks, Phase
from tests.chaos.plan import Plan

PATIENCE_SECONDS = 120.0
LOG = "output.txt"
ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 0.0005


class Death(NamedTuple):
    """Cómo acabó una vida.

    Attributes:
        plan: el plan, o None si se la dejó en paz.
        code: el código de salida (negativo: la señal que lo mató).
        sent: las señales que llegaron a mandarse.
        phase: lo que hacía al recibir la primera.
        running: si al recibirla las señales ya se atendían al acabar el paso.
        resumed: desde qué paso siguió; −1 si no llegó a tanto.
        steps: pasos dados al morir; −1 ídem.
        in_flight: paso del guardado a medias, o −1.
        orphans: si quedó vivo algún proceso suyo.
        seconds: lo que duró.
    """

    plan: Plan | None
    code: int
    sent: int
    phase: Phase
    running: bool
    resumed: int
    steps: int
    in_flight: int
    orphans: bool
    seconds: float


def run_life(
    home: Path, case: str, plan: Plan | None, quiet_seconds: float, planted: str | None = None
) -> Death:
    """Una vida entera.

    Args:
        home: carpeta del entrenamiento.
        case: uno de `CASES`.
        plan: cómo muere; None, si no se la toca.
        quiet_seconds: lo que dura un entrenamiento al que nadie toca.
        planted: la falta que se le planta, si alguna.

    Raises:
        TimeoutError: no acaba.
    """
    with Marks(home / MARKS) as marks:
        marks.reset()
        started = time.monotonic()
        pid = _give_birth(home, case, plan, planted)
        watch = _Watch(pid, marks, plan, quiet_seconds)
        try:
            code = watch.until_death()
        finally:
            orphans = _kill_group(pid)
        phase = watch.phase if plan and plan.signals[0] != signal.SIGKILL else marks.phase
        return Death(
            plan,
            code,
            watch.sent,
            phase,
            watch.running,
            marks[Mark.RESUMED],
            marks[Mark.STEPS],
            marks[Mark.IN_FLIGHT],
            orphans,
            time.monotonic() - started,
        )


class _Watch:
    """Espera el momento, manda las señales y recoge el código."""

    def __init__(self, pid: int, marks: Marks, plan: Plan | None, quiet_seconds: float) -> None:
        self.sent = 0
        self.phase = Phase.START
        self.running = False
        self._pid = pid
        self._marks = marks
        self._plan = plan
        self._delay = plan.moment * quiet_seconds if plan else 0.0
        self._born = time.monotonic()
        self._due: float | None = None
        self._stopped = False

    def until_death(self) -> int:
        while time.monotonic() - self._born < PATIENCE_SECONDS:
            found, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            if found and not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            self._stopped = self._stopped or bool(found)
            if self._plan is not None and self._is_time(self._plan):
                self._send(self._plan)
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"el entrenador no acaba en {PATIENCE_SECONDS:g} s")

    def _is_time(self, plan: Plan) -> bool:
        now = time.monotonic()
        if 0 < self.sent < len(plan.signals):
            return self._due is not None and now >= self._due
        if self.sent:
            return False
        if plan.ambush is not None:
            return self._stopped
        if self._due is None and (plan.from_birth or self._marks[Mark.RUNNING]):
            self._due = now + self._delay
        return self._due is not None and now >= self._due

    def _send(self, plan: Plan) -> None:
        if not self.sent:
            self.phase = self._marks.phase
            self.running = bool(self._marks[Mark.RUNNING])
        os.kill(self._pid, plan.signals[self.sent])
        self.sent += 1
        self._due = time.monotonic() + plan.gap
        if self._stopped:
            os.kill(self._pid, signal.SIGCONT)
            self._stopped = False


def in_child(output: Path, work: Callable[[], int]) -> None:
    """Hace `work` en una bifurcación, para que este proceso no calcule nada.

    Raises:
        RuntimeError: con lo que escribió, si falla.
    """
    if os.waitstatus_to_exitcode(os.waitpid(_fork(output, work), 0)[1]):
        raise RuntimeError(output.read_text(encoding="utf-8"))


def _give_birth(home: Path, case: str, plan: Plan | None, planted: str | None) -> int:
    ambush = plan.ambush if plan else None

    def work() -> int:
        if plan and plan.fresh:
            target = [str(int(value)) for value in ambush] if ambush else []
            os.chdir(ROOT)
            command = [sys.executable, "-m", "tests.chaos.life", str(home), case, *target]
            os.execv(sys.executable, command)
        return live(home, case, ambush, planted)

    return _fork(home / LOG, work)


def _fork(output: Path, work: Callable[[], int]) -> int:
    """Bifurca un proceso en su propia sesión, que escribe en `output` y acaba con `work`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        # Ni las señales que atiende el arnés ni las que quien lo lanzó pidió pasar por alto.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _kill_group(pid: int) -> bool:
    """Mata lo que quede en la sesión del entrenador; dice si quedaba algo."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
