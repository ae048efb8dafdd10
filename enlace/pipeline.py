"""Mantener las dependencias de código de `dvc.yaml` iguales al cierre de imports de cada etapa."""

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from enlace.config.views import PIPELINE_FILE
from enlace.files import write_text
from enlace.provenance import PACKAGES, module_closure


def stage_module(command: str) -> str:
    """El módulo que ejecuta `exec python -m stages.NOMBRE`."""
    return command.split()[-1]


def is_code(dependency: str) -> bool:
    """Si una dependencia de `dvc.yaml` es código propio."""
    return dependency.endswith(".py") and dependency.split("/")[0] in PACKAGES


def sync_code_dependencies(root: Path = Path()) -> list[str]:
    """Reescribe en `dvc.yaml` las dependencias de código y devuelve las etapas que cambiaron.

    Los comentarios, el orden y las dependencias de datos se conservan.
    """
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 100
    path = root / PIPELINE_FILE
    document: Any = yaml.load(path.read_text(encoding="utf-8"))
    changed = []
    for name, stage in document["stages"].items():
        current = list(stage.get("deps") or [])
        data = [item for item in current if not is_code(item)]
        wanted = data + [str(file) for file in module_closure(stage_module(stage["cmd"]), root)]
        if wanted != current:
            stage["deps"] = wanted
            changed.append(name)
    if changed:
        stream = io.StringIO()
        yaml.dump(document, stream)
        write_text(path, stream.getvalue())
    return changed
