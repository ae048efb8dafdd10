"""Los procesos de los contrincantes, vistos desde quien reparte los turnos."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tests.benchmarks.training_works import ROOT, Setup

_KEEP = str(1 << 32)
"""Bytes: ningún tensor se devuelve al sistema entre pasos, y nadie paga los fallos de página."""
_BUILD_SECONDS = 1800.0


class MissingPeerError(Exception):
    """A un contrincante le falta una biblioteca."""


class PeerFailedError(Exception):
    """Un contrincante ha muerto o no contesta."""


class Peer(Protocol):
    """Lo que el reparto necesita de un contrincante en marcha."""

    parameters: int

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Da una orden y espera la respuesta."""

    def close(self) -> None:
        """Lo termina."""


def environment(threads: int, malloc: str = "keep") -> dict[str, str]:
    """Las variables de entorno, iguales para todos: hilos, espera pasiva y asignador."""
    keep = {"MALLOC_MMAP_THRESHOLD_": _KEEP, "MALLOC_TRIM_THRESHOLD_": _KEEP}
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
        **(keep if malloc == "keep" else {}),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def worker_command(name: str, setup: Setup) -> list[str]:
    """La orden que arranca el proceso de un contrincante."""
    module = "tests.benchmarks.training_worker"
    return [sys.executable, "-m", module, name, json.dumps(setup.to_json())]


class Worker:
    """Un contrincante en su proceso."""

    def __init__(self, name: str, setup: Setup) -> None:
        """Lo arranca y espera a que esté montado; lo que diga por errores va a `setup.folder`.

        Raises:
            MissingPeerError: le falta una biblioteca.
            PeerFailedError: no ha llegado a montarse.
        """
        self._errors = Path(setup.folder) / f"{name}.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                worker_command(name, setup),
                cwd=ROOT,
                env=environment(setup.threads, setup.malloc),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            reply = self._receive(_BUILD_SECONDS)
            if lacking := reply.get("missing"):
                raise MissingPeerError(f"no instalado (falta {', '.join(lacking)})")
            self.parameters = int(reply["parameters"])
        except Exception:
            self.close()
            raise

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Da una orden y espera la respuesta.

        Raises:
            PeerFailedError: ha muerto o no contesta.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(command) + "\n").encode("utf-8"))
            self._process.stdin.flush()
        except OSError:
            raise self._failure() from None
        return self._receive(_BUILD_SECONDS)

    def close(self) -> None:
        """Le cierra la entrada, con lo que termina; si tarda, lo mata."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # ya había muerto
                stream.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self, seconds: float) -> dict[str, Any]:
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], seconds)[0]:
            raise PeerFailedError(f"no contesta desde hace {seconds:.0f} s")
        line = output.readline()
        if not line:
            raise self._failure()
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _failure(self) -> PeerFailedError:
        code = self._process.wait()
        text = self._errors.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = lines[-1] if lines else "sin explicación"
        return PeerFailedError(f"ha fallado (código {code}): {last}")
