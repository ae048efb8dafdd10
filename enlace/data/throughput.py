"""El avance de un trabajo que se mide en bytes de texto: hecho, velocidad y tiempo restante."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from enlace.figures import duration, magnitude, number, rough_duration
from enlace.progress import print_line

_MEGABYTE = 1_000_000
_SECONDS_BETWEEN_LINES = 10.0


class Throughput:
    """Una barra en una terminal; donde no la hay, una línea de vez en cuando y otra al acabar.

    Args:
        label: el trabajo, como «train».
        total: bytes UTF-8 que habrá que procesar.
        console: dónde se escribe; None, la salida corriente.
        now: reloj, en segundos.
    """

    def __init__(
        self,
        label: str,
        total: int,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done = 0
        self._label = label
        self._total = total
        self._now = now
        self._console = Console() if console is None else console
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._started = self._spoke = self._now()
        if self._console.is_terminal:
            columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task(self._label, total=max(1, self._total))
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()
        if error is None:
            print_line(self._console, f"{self._label}: {self._summary()}")

    def expect(self, share: float) -> None:
        """Corrige el total: lo hecho hasta ahora es esta parte de él."""
        if share > 0 and self.done:
            self._total = round(self.done / share)
            if self._bar:
                self._bar.update(self._task, total=self._total)

    def advance(self, size: int) -> None:
        """Apunta `size` bytes más."""
        self.done += size
        text = f"{self._label}: {self.describe()}"
        if self._bar:
            self._bar.update(self._task, completed=self.done, description=text)
        elif self._now() - self._spoke >= _SECONDS_BETWEEN_LINES:
            self._spoke = self._now()
            print_line(self._console, text)

    def describe(self) -> str:
        """Lo hecho, la velocidad y lo que queda: «120,0 de 480,0 MB · 40,0 MB/s · quedan 9 s»."""
        seconds = self._now() - self._started
        parts = [f"{_megabytes(self.done)} de {_megabytes(self._total)} MB"]
        if seconds > 0 and self.done:
            speed = self.done / seconds
            parts.append(f"{_megabytes(speed)} MB/s")
            if self.done < self._total:
                parts.append(f"quedan {rough_duration((self._total - self.done) / speed)}")
        return " · ".join(parts)

    def _summary(self) -> str:
        seconds = self._now() - self._started
        text = f"{magnitude(self.done, 'B')} en {duration(seconds)}"
        return text if seconds <= 0 else f"{text} ({magnitude(self.done / seconds, 'B/s')})"


def _megabytes(size: float) -> str:
    return number(size / _MEGABYTE, 1)
