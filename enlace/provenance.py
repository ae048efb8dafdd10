"""De dónde sale un resultado: huellas del código, estado de git, versiones y la guarda de entradas.

El cierre de imports se calcula leyendo el código con `ast`, sin ejecutarlo: es la misma lista que
declara `dvc.yaml` en las dependencias de cada etapa (una prueba las compara).
"""

import ast
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from enlace.config.load import PARAMS_FILE, load_config
from enlace.config.views import declared_deps, declared_params, declared_values
from enlace.errors import InputsChangedError
from enlace.files import sha256_file, sha256_json

PACKAGES = ("enlace", "stages")
PATCHED = (*PACKAGES, "configs", "dvc.yaml", "data/sample", "data/raw.dvc")
"""Lo que decide un resultado y va en git: si no está guardado, el manifiesto lleva un parche."""
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
    """El commit y, si hay cambios sin guardar, el SHA-256 de `code_patch`; nulos fuera de git."""
    commit = _git(root, "rev-parse", "HEAD")
    patch = code_patch(root)
    return {
        "commit": commit.decode().strip() if commit else None,
        "diff_sha256": hashlib.sha256(patch).hexdigest() if patch else None,
    }


def code_patch(root: Path = Path()) -> bytes:
    """El parche (`git apply`) de HEAD a lo que hay ahora; vacío si no hay cambios o no hay git.

    Cubre el código, la configuración, la tubería y el texto que va en git, con los ficheros nuevos
    que git aún no sigue. `params.yaml` no: el manifiesto guarda la configuración entera.
    """
    objects = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    existing = [path for path in PATCHED if (root / path).exists()]
    if objects is None or not existing:
        return b""
    with tempfile.TemporaryDirectory(prefix="enlace-git-") as folder:
        # Un índice y un almacén de usar y tirar: el repositorio no se toca.
        apart = {
            "GIT_INDEX_FILE": f"{folder}/index",
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects.decode().strip(),
        }
        if _git(root, "read-tree", "HEAD", environment=apart) is None:
            return b""
        _git(root, "add", "--all", "--", *existing, environment=apart)
        limits = ("--", *PATCHED)
        patch = _git(
            root, "diff", "--cached", "--binary", "--no-ext-diff", "HEAD", *limits,
            environment=apart,
        )  # fmt: skip
    return patch or b""


def commit_exists(commit: str, root: Path = Path()) -> bool:
    """Si el repositorio tiene ese commit."""
    return _git(root, "cat-file", "-e", f"{commit}^{{commit}}") is not None


def _git(root: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=root,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            check=False,
        )
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


def input_state(path: Path) -> Any:
    """Algo que cambia cuando cambia la entrada `path`; None si no existe.

    De un fichero suelto (código, un veredicto) es su SHA-256, porque git puede reescribirlo igual
    (`dvc exp run --temp` lo hace). De una carpeta de datos, el tamaño, la fecha y el inodo de cada
    fichero: no hay que releer gigabytes.
    """
    if path.is_file():
        return sha256_file(path)
    if not path.is_dir():
        return None
    states = {}
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        status = file.stat()
        states[str(file)] = [status.st_size, status.st_mtime_ns, status.st_ino]
    return states


def stage_inputs(stage: str) -> dict[str, Any]:
    """Los parámetros y dependencias que `dvc.yaml` declara para `stage`, como están ahora.

    Raises:
        ConfigError: `params.yaml` o `dvc.yaml` no son válidos.
    """
    config = load_config(PARAMS_FILE)
    values = declared_values(config, declared_params(stage))
    return {f"{key} en {PARAMS_FILE}": value for key, value in values.items()} | {
        str(path): input_state(path) for path in declared_deps(stage, config)
    }


@dataclass(frozen=True)
class InputsGuard:
    """Las entradas de una etapa, tal como estaban al empezar.

    DVC apunta en `dvc.lock` las dependencias como están *después* de la orden. Si alguien edita
    `params.yaml` mientras la etapa trabaja, el registro mentiría; por eso la etapa vuelve a mirar
    las entradas antes de darse por buena y se niega si se movieron.
    """

    take: Callable[[], Mapping[str, Any]]
    before: Mapping[str, Any]

    @classmethod
    def open(cls, take: Callable[[], Mapping[str, Any]]) -> "InputsGuard":
        """Toma la foto inicial con `take`, que devuelve {nombre de la entrada: valor}."""
        return cls(take, take())

    def check(self, remedy: str) -> None:
        """Compara con la foto inicial; `remedy` dice qué queda hecho y cómo seguir.

        Raises:
            InputsChangedError: con los nombres de lo que cambió.
        """
        after = self.take()
        names = [*self.before, *(name for name in after if name not in self.before)]
        moved = [name for name in names if after.get(name) != self.before.get(name)]
        if moved:
            raise InputsChangedError(
                f"mientras corría la etapa cambió: {', '.join(moved)}. {remedy}"
            )
