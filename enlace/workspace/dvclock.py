"""El `rwlock` de DVC: si se quedó a medias, ninguna orden de DVC funciona hasta quitarlo.

DVC lo reescribe en su sitio; un corte justo entonces lo deja vacío o a medias. Las entradas de
procesos muertos, en cambio, las limpia DVC por su cuenta.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from enlace.errors import LockError
from enlace.workspace.project import DVC_CLI

RWLOCK = Path(".dvc/tmp/rwlock")
_GLANCES = 50
"""Miradas a un DVC al que se le acaba de parar la etapa: solo le queda decirlo."""


def rwlock_problem(root: Path) -> str | None:
    """Qué le pasa al rwlock de `root` («está vacío», «no es JSON»…), o None si está bien."""
    try:
        content = (root / RWLOCK).read_bytes()
    except FileNotFoundError:
        return None
    if not content.strip():
        return "está vacío"
    try:
        value: Any = json.loads(content)
    except ValueError:
        return "no es JSON"
    return None if isinstance(value, dict) else "no tiene la forma que DVC espera"


def dvc_processes(root: Path) -> list[int]:
    """Los procesos de DVC vivos que trabajan dentro de `root`."""
    return [pid for pid in _processes() if _is_dvc(pid) and _works_in(pid, root)]


def unlock(root: Path) -> str | None:
    """Quita el rwlock si está dañado y devuelve qué le pasaba; None si no hacía falta.

    Raises:
        LockError: hay un proceso de DVC vivo, que quizá lo esté escribiendo ahora mismo.
    """
    problem = rwlock_problem(root)
    if problem is None:
        return None
    alive = dvc_processes(root)
    if alive:
        numbers = ", ".join(str(pid) for pid in alive)
        raise LockError(
            f"{RWLOCK} {problem}, pero DVC sigue en marcha aquí (proceso {numbers}) y puede estar "
            "escribiéndolo; espera a que acabe o detenlo, y repite `make unlock`"
        )
    (root / RWLOCK).unlink(missing_ok=True)
    return problem


def dvc_above(pid: int, root: Path) -> list[int]:
    """Los DVC de `root` de los que desciende el proceso `pid`."""
    above = set()
    while pid > 1 and pid not in above:
        above.add(pid)
        try:
            # «1234 (python) S 1200 …»: el nombre puede llevar paréntesis y espacios.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return [found for found in dvc_processes(root) if found in above]


def wait_until_gone(pids: Collection[int], root: Path, wait: Callable[[], object]) -> None:
    """Espera, llamando a `wait`, a que esos DVC acaben, pero no a lo que hagan después.

    Un entrenamiento que acababa justo entonces deja a DVC trabajando un buen rato: no se espera.
    """
    for _ in range(_GLANCES):
        if not set(pids) & set(dvc_processes(root)):
            return
        wait()


def _processes() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            yield int(entry.name)


def _is_dvc(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    program = [word.rpartition(b"/")[2] for word in words[:2]]
    return b"dvc" in program or words[1:3] in ([b"-m", b"dvc"], [b"-m", DVC_CLI.encode()])


def _works_in(pid: int, root: Path) -> bool:
    try:
        folder = Path(f"/proc/{pid}/cwd").resolve(strict=True)
    except OSError:
        return False
    return folder.is_relative_to(root.resolve())
