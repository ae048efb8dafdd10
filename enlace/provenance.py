"""De dónde sale un resultado: huellas del código, estado de git, versiones y la guarda de entradas.

El cierre de imports se calcula leyendo el código con `ast`, sin ejecutarlo: es la misma lista que
declara `dvc.yaml` en las dependencias de cada etapa (una prueba las compara).
"""

import ast
import hashlib
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from enlace.errors import InputsChangedError
from enlace.files import sha256_json

PACKAGES = ("enlace", "stages")
_TRACKED_VERSIONS = ("torch", "numpy", "safetensors", "tokenizers", "pydantic")


def module_closure(entry: str, root: Path = Path()) -> list[Path]:
    """Los ficheros propios que importa `entry` ("stages.pretrain"), directa o indirectamente.

    Incluye los imports escritos dentro de funciones y los `__init__.py` de cada paquete. Las rutas
    son relativas a `root` y van ordenadas.
    """
    found: set[Path] = set()
    pending = [entry]
    while pending:
        for file in _files_of(pending.pop(), root) - found:
            found.add(file)
            pending.extend(_imports(root / file))
    return sorted(found)


def _files_of(module: str, root: Path) -> set[Path]:
    parts = module.split(".")
    if parts[0] not in PACKAGES:
        return set()
    files = {Path(*parts[:end], "__init__.py") for end in range(1, len(parts) + 1)}
    files.add(Path(*parts).with_suffix(".py"))
    return {file for file in files if (root / file).is_file()}


def _imports(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            # `from enlace.data import shards` importa el módulo enlace.data.shards.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def normalized_source(text: str) -> str:
    """El código sin comentarios, docstrings ni formato: igual texto, igual comportamiento."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def code_fingerprints(files: Iterable[Path], root: Path = Path()) -> dict[str, str]:
    """Huellas del código: `code` (los bytes) y `code_normalized` (sin comentarios ni docstrings).

    Returns:
        Dos SHA-256 hexadecimales, calculados sobre {ruta: sha256} de todos los ficheros.
    """
    raw: dict[str, str] = {}
    normalized: dict[str, str] = {}
    for file in files:
        content = (root / file).read_bytes()
        raw[str(file)] = hashlib.sha256(content).hexdigest()
        plain = normalized_source(content.decode("utf-8")).encode("utf-8")
        normalized[str(file)] = hashlib.sha256(plain).hexdigest()
    return {"code": sha256_json(raw), "code_normalized": sha256_json(normalized)}


def git_state(root: Path = Path()) -> dict[str, Any]:
    """El commit y, si hay cambios sin guardar, el SHA-256 del diff; nulos fuera de git."""
    commit = _git(root, "rev-parse", "HEAD")
    diff = _git(root, "diff", "HEAD", "--binary", "--", *PACKAGES, "configs", "dvc.yaml")
    return {
        "commit": commit.decode().strip() if commit else None,
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
    }


def _git(root: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Versiones de Python y de las bibliotecas que deciden el resultado."""
    found = {"python": platform.python_version()}
    for name in _TRACKED_VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "ausente"
    return found


def run_key(identity: str, data_fingerprint: str) -> str:
    """La clave de la carpeta de un run: 16 cifras de la identidad junto con los datos.

    Con otra receta u otros datos la carpeta es otra, de modo que un experimento nunca encuentra
    los checkpoints de otro.
    """
    return sha256_json({"identity": identity, "data": data_fingerprint})[:16]


def file_states(files: Iterable[Path]) -> dict[str, list[int]]:
    """Tamaño, fecha e inodo de cada fichero: detecta cambios sin releer gigabytes."""
    states = {}
    for file in files:
        status = file.stat()
        states[str(file)] = [status.st_size, status.st_mtime_ns, status.st_ino]
    return states


def folder_states(folder: Path) -> dict[str, list[int]]:
    """`file_states` de todos los ficheros de una carpeta."""
    return file_states(sorted(file for file in folder.rglob("*") if file.is_file()))


@dataclass(frozen=True)
class InputsGuard:
    """Las entradas de una etapa, tal como estaban al empezar.

    DVC apunta en `dvc.lock` las dependencias como están *después* de la orden. Si alguien edita
    `params.yaml` mientras se entrena, el registro mentiría; por eso la etapa vuelve a mirar las
    entradas antes de entregar y se niega si se movieron.
    """

    take: Callable[[], Mapping[str, Any]]
    before: Mapping[str, Any]

    @classmethod
    def open(cls, take: Callable[[], Mapping[str, Any]]) -> "InputsGuard":
        """Toma la foto inicial con `take`, que devuelve {nombre en español: valor comparable}."""
        return cls(take, take())

    def check(self, kept: str) -> None:
        """Compara con la foto inicial; `kept` dice dónde queda el trabajo hecho.

        Raises:
            InputsChangedError: con los nombres de lo que cambió.
        """
        after = self.take()
        moved = [name for name, value in self.before.items() if after.get(name) != value]
        if moved:
            raise InputsChangedError(
                f"mientras corría la etapa cambió: {', '.join(moved)}. El trabajo está completo en "
                f"{kept}; deja las entradas como estaban y repite la orden: solo tendrá que "
                "exportar (o repítela así para empezar con las nuevas)"
            )
