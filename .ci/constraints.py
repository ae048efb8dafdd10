"""Escribe `.constraints.txt`: las versiones instaladas de todo lo que el proyecto necesita.

Recorre las dependencias declaradas (con el extra `dev`) y las de sus dependencias. Las versiones
van sin sufijo local (`2.13.0`, no `2.13.0+cpu`): con él, quien tiene una GPU recibiría un torch
que no la usa.
"""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# Versiones exactas con las que se prueba el proyecto; pip las respeta en `make setup`.
# Lo escribe `make lock`. Sin sufijos locales, direcciones ni rutas: el torch==2.13.0 de siempre
# sirve igual para CPU y para cualquier GPU que el proyecto admite.
"""


def main() -> None:
    """Calcula el cierre de dependencias y reemplaza `.constraints.txt`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    versions: dict[str, str] = {}
    pending = [(Requirement(text), frozenset({""})) for text in declared]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        requirement, extras = pending.pop()
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        wanted = frozenset({"", *requirement.extras})
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            sys.exit(f"{name} no está instalado; ejecuta antes `make setup-dev`")
        versions[name] = distribution.version.partition("+")[0]
        pending += [(Requirement(text), wanted) for text in distribution.requires or []]
    lines = "".join(f"{name}=={versions[name]}\n" for name in sorted(versions))
    (ROOT / ".constraints.txt").write_text(HEADER + lines, encoding="utf-8")
    sys.stdout.write(f".constraints.txt: {len(versions)} paquetes\n")


if __name__ == "__main__":
    main()
