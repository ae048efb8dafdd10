"""Las capas del código: cada módulo importa solo de rangos inferiores o de su propio paquete."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RANKS = {
    "enlace": 0,
    "enlace.errors": 0,
    "enlace.files": 0,
    "enlace.paths": 0,
    "enlace.figures": 0,
    "enlace.config": 1,
    "enlace.provenance": 2,
    "enlace.manifest": 1,
    "enlace.cards": 1,
    "enlace.devices": 2,
    "enlace.backends": 3,
    "enlace.process": 2,
    "enlace.llama_process": 2,
    "enlace.progress": 2,
    "enlace.pipeline": 3,
    "enlace.data": 3,
    "enlace.model": 3,
    "enlace.train": 4,
    "enlace.reports": 4,
    "enlace.evaluation": 5,
    "enlace.inference": 5,
    "enlace.lineage": 5,
    "enlace.preflight": 5,
    "enlace.serve": 5,
    "enlace.export": 6,
    "enlace.workspace": 6,
    "enlace.cli": 7,
    "enlace.__main__": 8,
    "stages": 7,
}
FILES = sorted(
    path
    for package in ("enlace", "stages")
    for path in (ROOT / package).rglob("*.py")
    if "__pycache__" not in path.parts
)
FORBIDDEN_CALLS = {
    ("torch", "load"),
    ("torch", "save"),
    ("torch", "serialization"),
    ("torch", "hub"),
    ("os", "system"),
}
FORBIDDEN_ATTRIBUTES = {"read_pickle", "to_pickle", "object_"}
FORBIDDEN_BUILTINS = {"eval", "exec", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _unit(module: str) -> str:
    """La entrada de RANKS a la que pertenece un módulo: «enlace.data.shards» → «enlace.data»."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "enlace" else parts[0]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[str]:
    """Todo lo que importa un fichero, también dentro de funciones."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import relativo"
            assert node.module is not None
            if node.module == "enlace":  # `from enlace import data` importa enlace.data
                yield from (f"enlace.{alias.name}" for alias in node.names)
            else:
                yield node.module


def violations(module: str, imported: list[str]) -> list[str]:
    """Los imports de `module` que no bajan de rango ni quedan en su paquete."""
    own = _unit(module)
    return [
        name
        for name in imported
        if name.split(".")[0] in ("enlace", "stages")
        and _unit(name) != own
        and RANKS[_unit(name)] >= RANKS[own]
    ]


def test_cada_fichero_tiene_rango() -> None:
    assert FILES
    assert {_unit(_module(path)) for path in FILES} <= set(RANKS)


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_solo_importa_de_rangos_inferiores(path: Path) -> None:
    assert violations(_module(path), list(_imports(path))) == []


@pytest.mark.parametrize(
    ("module", "imported", "wrong"),
    [
        ("enlace.data.shards", "enlace.model.loss", True),
        ("enlace.train.trainer", "enlace.evaluation.loss", True),
        ("enlace.files", "enlace.config.load", True),
        ("enlace.cli", "stages.pretrain", True),
        ("enlace.data.shards", "enlace.data.streams", False),
        ("stages.pretrain", "enlace.train.trainer", False),
        ("enlace.model.loss", "torch", False),
    ],
)
def test_la_regla_distingue(module: str, imported: str, wrong: bool) -> None:
    assert bool(violations(module, [imported])) is wrong


def test_los_imports_dentro_de_funciones_tambien_cuentan(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from enlace.train import trainer\n    from enlace import data\n")
    assert list(_imports(path)) == ["enlace.train", "enlace.data"]


def test_ninguna_etapa_se_llama_como_un_modulo_de_python() -> None:
    names = {path.stem for path in (ROOT / "stages").glob("*.py")} - {"__init__"}
    assert not names & set(sys.stdlib_module_names)


def test_la_configuracion_y_la_orden_no_importan_torch() -> None:
    modules = [
        _module(path) for path in FILES if _unit(_module(path)) in ("enlace.cli", "enlace.config")
    ]
    code = f"import sys\nimport {', '.join(modules)}\nprint('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def dangers(tree: ast.Module) -> list[str]:
    """Lo que el proyecto no se permite: pickle y lo que lo usa, shell o un `except` sin tipo."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                found += _imported_dangers(node)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                wrong = (owner, name) in FORBIDDEN_CALLS or name in FORBIDDEN_ATTRIBUTES
                found += [f"{owner}.{name}"] if wrong else []
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_BUILTINS:
                found.append(name)
            case ast.Call(args=[ast.Constant(value=name)]) if name in FORBIDDEN_MODULES:
                found.append(f"importa {name} por su nombre")
            case ast.keyword(arg="dtype", value=ast.Name(id="object")):
                found.append("dtype=object")
            case ast.keyword(arg="shell" | "allow_pickle" as name):
                found.append(f"{name}=")
            case ast.ExceptHandler(type=None):
                found.append("except:")
    return found


def _imported_dangers(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else None
    loose = [name for name in names if (module, name) in FORBIDDEN_CALLS]
    sources = names if module is None else [*names, module]
    return loose + [name for name in sources if name.split(".")[0] in FORBIDDEN_MODULES]


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_nada_de_pickle_ni_shell_ni_except_a_secas(path: Path) -> None:
    assert dangers(_tree(path)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "subprocess.run('x', shell=True)",
        "np.load('x', allow_pickle=True)",
        "np.array([], dtype=object)",
        "np.empty(3, np.object_)",
        "from torch import load",
        "from torch import serialization",
        "torch.hub.load('x', 'y')",
        "torch.serialization.load('x')",
        "pandas.read_pickle('x')",
        "__import__('pickle')",
        "exec('import pickle')",
        "def f():\n    import pickle",
        "import importlib\nimportlib.import_module('pickle')",
        "try:\n    pass\nexcept:\n    pass",
    ],
)
def test_cada_peligro_se_detecta(code: str) -> None:
    assert dangers(ast.parse(code))


@pytest.mark.slow
def test_importar_un_modulo_no_hace_nada_mas(tmp_path: Path) -> None:
    # Ni ficheros nuevos ni nada escrito en pantalla al importar cualquier módulo de la biblioteca.
    modules = [_module(path) for path in FILES if path.parts[-1] != "__main__.py"]
    library = [name for name in modules if name.startswith("enlace")]
    code = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport {', '.join(library)}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
