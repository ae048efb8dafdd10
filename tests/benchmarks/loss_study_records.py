"""El cuaderno del estudio: una línea de JSON por entrenamiento acabado.

Una muerte a media línea deja un resto sin salto de línea: no se lee, y la siguiente empieza en una
línea nueva. Varios procesos pueden apuntar a la vez.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

NAME = "runs.jsonl"


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Las líneas enteras del cuaderno de `folder`, en el orden en que acabaron."""
    path = folder / NAME
    if not path.exists():
        return []
    *lines, _rest = path.read_bytes().split(b"\n")
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def append_record(folder: Path, record: dict[str, Any]) -> None:
    """Añade una línea y la lleva al disco."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    with (folder / NAME).open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
