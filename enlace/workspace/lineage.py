"""Las órdenes del linaje: encontrar lo que se pide, y lo que se escribe."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from enlace.config.load import write_params
from enlace.errors import CheckpointError, EnlaceError
from enlace.lineage.checks import Check
from enlace.lineage.reproduce import plan, reproduce
from enlace.lineage.tree import lineage_json, lineage_tree, render
from enlace.lineage.verify import verify
from enlace.train.artifact import open_artifact
from enlace.workspace.runs import RUNS


def locate(given: str, start: Path, root: Path) -> Path:
    """La carpeta que se pide: una ruta desde donde se escribió la orden, o el nombre de un run.

    Args:
        given: lo que se escribió.
        start: la carpeta desde la que se escribió.
        root: la raíz del proyecto, que ya es la carpeta actual.

    Raises:
        CheckpointError: no existe.
    """
    path = start / given
    if not path.is_dir():
        path = root / RUNS / given
    if not path.is_dir():
        raise CheckpointError(
            f"{given} no es una carpeta ni un run de esta máquina; da la de un checkpoint, un run "
            "o un modelo (si lo guarda DVC, tráelo antes con `make pull`)"
        )
    here, found = Path.cwd(), path.resolve()
    return found.relative_to(here) if found.is_relative_to(here) else found


def lineage_text(path: Path, as_json: bool) -> str:
    """El linaje de `path`, como árbol o como JSON."""
    artifact = open_artifact(path)
    if as_json:
        return json.dumps(lineage_json(artifact), ensure_ascii=False, indent=2)
    return "\n".join(render(lineage_tree(artifact)))


def verify_lines(path: Path, root: Path, data: bool, strict: bool) -> Iterator[str]:
    """Lo que no está bien y un resumen; al final, si algo falla, el error que nombra lo primero.

    Raises:
        EnlaceError: hay un daño o, con `strict`, algo distinto o sin comprobar.
    """
    checks = verify(path, root, data)
    for check in checks:
        if check.status != "bien":
            yield check.line()
    counts = dict.fromkeys(("bien", "dañado", "distinto", "sin comprobar"), 0)
    for check in checks:
        counts[check.status] += 1
    yield f"{path}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    first = _first(checks, strict)
    if first is not None:
        raise EnlaceError(f"{path} no se verifica; lo primero, {first.line()}")


def _first(checks: list[Check], strict: bool) -> Check | None:
    statuses = ("dañado", "distinto", "sin comprobar") if strict else ("dañado",)
    for status in statuses:
        for check in checks:
            if check.status == status:
                return check
    return None


def reproduce_lines(path: Path, root: Path, folder: str) -> list[str]:
    """Las órdenes que repiten `path` y, como comentarios, lo que hay que saber antes.

    Raises:
        EnlaceError: falta algo para poder repetirlo.
    """
    made = plan(open_artifact(path), Path(folder), root)
    if made.blocked is not None:
        raise EnlaceError(f"no se puede repetir {path}: {made.blocked}")
    return [*(f"# {warning}" for warning in made.warnings), *made.commands]


def reproduce_now(path: Path, root: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Repite `path` en un clon nuevo, contando cada orden a `say`, y compara los pesos."""
    reproduce(open_artifact(path), folder, root, say)


def restore_params(path: Path, root: Path) -> str:
    """Escribe `params.yaml` con la configuración de `path` y devuelve su run."""
    config = open_artifact(path).config
    write_params(config, [], root)
    return config.run_name
