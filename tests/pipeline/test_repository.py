"""El repositorio como lo recibe otra persona: nada ignorado por error, nada de esta máquina."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("enlace", "configs", "stages", "tests", "data/sample", "docs", ".ci", ".dvc")
TOP_LEVEL = {
    "LICENSE",
    "Makefile",
    "README.en.md",
    "README.md",
    "configs",
    "data",
    "docs",
    "dvc.yaml",
    "enlace",
    "params.yaml",
    "pyproject.toml",
    "stages",
    "tests",
}
# Rutas de una máquina concreta; las del sistema que valen en todas (/proc, /tmp, /dev) no entran.
HOMES = "/" + "home/"
MACHINE_PATH = re.compile(r"(?<![\w.$}*-])/(?:home|root|Users|work|opt)/[\w.-]+")


def _git(*arguments: str, check: bool = True) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=check
    ).stdout


def _tracked() -> list[str]:
    return [name for name in _git("ls-files", "-z").split("\0") if name]


def _ignored(paths: list[str]) -> set[str]:
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=ROOT,
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {name for name in done.stdout.split("\0") if name}


@pytest.fixture(autouse=True, scope="module")
def _needs_git() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no es un repositorio git")


def test_git_no_ignora_ninguna_fuente() -> None:
    files = [
        str(path.relative_to(ROOT))
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", "tmp"} & set(path.relative_to(ROOT).parts)
    ]
    assert files
    allowed = {".dvc/config.local"} | {name for name in files if name.startswith(".dvc/cache/")}
    assert _ignored(files) - allowed == set()
    assert _ignored(_tracked()) == set()


def test_los_patrones_de_gitignore_estan_anclados() -> None:
    # Una carpeta sin barra inicial se traga también enlace/data/ y configs/data/.
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    loose = [line for line in patterns if not line.startswith("/")]
    assert loose == ["__pycache__/", "*.py[co]"]


@pytest.mark.parametrize(
    "path",
    [
        ".vscode/settings.json",
        ".venv/bin/python",
        "data/raw/x.txt",
        "data/corpus/train.jsonl.zst",
        "data/shards/index.json",
        "data/tokenizer/tokenizer.json",
        "checkpoints/model/model.safetensors",
        "exported/README.md",
        "runs/demo-0123456789abcdef/train.tsv",
        ".enlace/preflight/x.json",
        "enlace/__pycache__/cli.cpython-311.pyc",
        "enlace.egg-info/PKG-INFO",
    ],
)
def test_lo_generado_si_se_ignora(path: str) -> None:
    assert _ignored([path]) == {path}


def test_dvc_no_mira_lo_que_cambia_solo() -> None:
    text = (ROOT / ".dvcignore").read_text(encoding="utf-8").splitlines()
    assert {"__pycache__/", "*.py[co]", "/.venv", "/.enlace/", "/runs/"} <= set(text)


def test_la_raiz_solo_tiene_lo_que_debe() -> None:
    found = {name.split("/")[0] for name in _tracked()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


def test_el_repositorio_no_trae_resultados_de_nadie() -> None:
    generated = re.compile(r"dvc\.lock|reports/|checkpoints/|exported/|runs/|data/(?!sample/)")
    assert [name for name in _tracked() if generated.match(name)] == []


def test_ningun_fichero_nombra_rutas_de_una_maquina() -> None:
    found = []
    for name in _tracked():
        path = ROOT / name
        if not path.is_file() or path == Path(__file__) or name == "LICENSE":
            continue
        content = path.read_bytes()
        if b"\0" in content:
            continue
        found += [f"{name}: {match}" for match in MACHINE_PATH.findall(content.decode("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"ver {HOMES}ana/textos", True),
        ("«/root/x»", True),
        ("~/textos", False),
        (f"a{HOMES}x", False),
    ],
)
def test_la_busqueda_de_rutas_distingue(text: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is found


def test_todos_los_ficheros_de_texto_son_utf8_con_salto_final() -> None:
    for name in _tracked():
        path = ROOT / name
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".toml", ".txt"):
            content = path.read_text(encoding="utf-8")
            assert not content or content.endswith("\n"), name
            assert "\r" not in content, name


def _constraints() -> dict[str, str]:
    lines = (ROOT / ".constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for line in pins:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), line
    return dict(line.split("==") for line in pins)


def test_las_versiones_fijadas_sirven_en_cualquier_maquina() -> None:
    # Un sufijo local (+cpu) daría a quien tiene una GPU un torch que no la usa.
    assert _constraints()["torch"] == "2.13.0"


def test_todo_lo_declarado_esta_fijado_y_cumple_lo_declarado() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = _constraints()
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


def test_los_dos_readme_existen_y_se_enlazan() -> None:
    spanish, english = ROOT / "README.md", ROOT / "README.en.md"
    assert "README.en.md" in spanish.read_text(encoding="utf-8")
    assert "README.md" in english.read_text(encoding="utf-8")


def _make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE))


def test_la_documentacion_solo_nombra_ordenes_de_make_que_existen() -> None:
    targets = _make_targets()
    assert {"demo", "train", "test", "check"} <= targets
    documents = [ROOT / "README.md", ROOT / "README.en.md", *(ROOT / "docs").rglob("*.md")]
    for path in documents:
        if path.name == "PLAN.md":
            continue  # habla de lo que aún no existe
        code = re.findall(r"```.*?```|`[^`\n]+`", path.read_text(encoding="utf-8"), re.DOTALL)
        for name in re.findall(r"(?:^|`|&& )make ([a-z-]+)", "\n".join(code), re.MULTILINE):
            assert name in targets, f"{path.name}: make {name}"


def test_cada_orden_de_make_se_explica_en_la_ayuda() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    explained = set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
    assert _make_targets() - explained == {"guard", "need-run", "run-for-set"}
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in explained:
        assert f"make {name} " in done.stdout


def test_la_integracion_es_un_guion_ejecutable() -> None:
    assert _git("ls-files", "--stage", ".ci/run").startswith("100755 ")
    subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, check=True)


@pytest.mark.slow
def test_una_rueda_de_un_clon_limpio_trae_todos_los_modulos(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    _git("clone", "--quiet", str(ROOT), str(clone))
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        "dist",
        ".",
    ]
    subprocess.run(build, cwd=clone, check=True)
    (wheel,) = (clone / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    files = [path for package in ("enlace", "stages") for path in (clone / package).rglob("*.py")]
    relative = sorted(path.relative_to(clone) for path in files)
    assert [path for path in relative if not (site / path).is_file()] == []
    modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in relative]
    code = f"import importlib, enlace\nfor name in {modules}: importlib.import_module(name)\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "print(enlace.__file__)"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(site)
