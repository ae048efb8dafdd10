"""El sello de una máquina: «esta configuración se midió aquí y pasó».

Vive fuera de DVC y de git (`.enlace/preflight/`), porque un veredicto viaja con el repositorio y
una medida no: quien clona el proyecto en otra máquina debe medir en la suya.
"""

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from enlace.files import write_json

STAMP_FOLDER = Path(".enlace/preflight")
_MACHINE_ID_FILE = Path("/etc/machine-id")
_MACHINE_DIGITS = 12
_KEY_DIGITS = 16


def machine_id(device: str, machine_file: Path = _MACHINE_ID_FILE) -> str:
    """Doce cifras hexadecimales de la máquina, su dispositivo y la versión de torch.

    Sin `/etc/machine-id` (algunos contenedores) se usa el nombre de la máquina. Cambiar de tarjeta
    o de torch pide medir otra vez. No importa torch: preguntar por un sello debe ser inmediato.

    Args:
        device: el nombre de la tarjeta, o «cpu».
        machine_file: dónde guarda el sistema su identificador.
    """
    try:
        machine = machine_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        machine = ""
    parts = [machine or platform.node(), device, _torch_version()]
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()[:_MACHINE_DIGITS]


def stamp_path(root: Path, machine: str, key: str) -> Path:
    """Dónde está el sello de `key` (la clave del veredicto) para `machine`."""
    return root / STAMP_FOLDER / f"{machine}-{key[:_KEY_DIGITS]}.json"


def write_stamp(root: Path, machine: str, key: str, device: str) -> Path:
    """Sella la configuración `key` en esta máquina y devuelve la ruta."""
    path = stamp_path(root, machine, key)
    write_json(path, _stamp(machine, key, device))
    return path


def has_stamp(root: Path, machine: str, key: str) -> bool:
    """Si esta máquina tiene un sello legible y de esa misma clave; uno dañado no cuenta.

    Ni uno retocado: lo que diga un campo que esta versión no conoce podría ser en contra.
    """
    try:
        stamp: Any = json.loads(stamp_path(root, machine, key).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(stamp, dict):
        return False
    expected = _stamp(machine, key, stamp.get("device", ""))
    return isinstance(stamp.get("device"), str) and stamp == expected


def remove_stamps(root: Path, key: str) -> None:
    """Borra los sellos de esa clave: lo medido ahora los desmiente."""
    for path in (root / STAMP_FOLDER).glob(f"*-{key[:_KEY_DIGITS]}.json"):
        path.unlink(missing_ok=True)


def _stamp(machine: str, key: str, device: str) -> dict[str, str]:
    return {"machine": machine, "key": key, "device": device, "torch": _torch_version()}


def _torch_version() -> str:
    return metadata.version("torch")
