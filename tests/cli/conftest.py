"""Un proyecto de verdad en una carpeta temporal: el código de este, con su git y su DVC propios."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from enlace.cli import main
from enlace.workspace import raw

from .support_hub import write_hub

ROOT = Path(__file__).parents[2]
COPIED = (
    "enlace",
    "configs",
    "stages",
    ".dvc/config",
    ".dvc/.gitignore",
    ".dvcignore",
    ".gitignore",
    "Makefile",
    "pyproject.toml",
    ".constraints.txt",
    "params.yaml",
)
# Una etapa por nombre real, tan corta que DVC es lo único que tarda.
PIPELINE = """\
stages:
  pretrain:
    cmd: exec python -m stages.short
    params: [run_name, train]
    deps: [stages/__init__.py, stages/short.py, input.txt]
    outs: [output.txt]
  evaluate:
    cmd: exec python -c "import shutil; shutil.copy('params.yaml', 'seen.yaml')"
    params: [run_name, hardware, model, train, data]
    deps: [output.txt]
    outs:
      - seen.yaml:
          cache: false
"""
SHORT_STAGE = '''\
"""Una etapa corta."""

from pathlib import Path


def main() -> None:
    """Copia la entrada."""
    Path("output.txt").write_text(Path("input.txt").read_text())  # una copia


main()
'''


class Project:
    """Una copia del proyecto y cómo se le dan órdenes."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "DVC_SITE_CACHE_DIR": str(home / "dvc"),
            "DVC_NO_ANALYTICS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
            "GIT_AUTHOR_NAME": "Prueba",
            "GIT_AUTHOR_EMAIL": "prueba@example.org",
            "GIT_COMMITTER_NAME": "Prueba",
            "GIT_COMMITTER_EMAIL": "prueba@example.org",
        }

    def run(
        self, *command: str, cwd: Path | None = None, extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Ejecuta una orden en el proyecto, sin terminal."""
        return subprocess.run(
            command,
            cwd=cwd or self.root,
            env=self.environment | dict(extra or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def enlace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`enlace …` en este mismo proceso: arrancar otro cuesta más que casi todas las órdenes."""
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with (
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(sys, "argv", ["enlace", *arguments])
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.delenv("DVC_ROOT", raising=False)
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def apart(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`enlace …` en otro proceso y con el código de la copia."""
        return self.run(sys.executable, "-m", "enlace.cli", *arguments)

    def ok(self, *arguments: str) -> str:
        """`enlace …`, que debe ir bien; devuelve lo que escribe."""
        done = self.enlace(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """`enlace …`, que debe negarse con una sola línea y código 2; devuelve la línea."""
        done = self.enlace(*arguments)
        assert done.returncode == 2, done.stdout + done.stderr
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("enlace: ")
        return lines[0]

    def dvc(self, *arguments: str) -> str:
        """`dvc …`, que debe ir bien."""
        done = self.run(sys.executable, "-m", "dvc", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def git(self, *arguments: str) -> str:
        """`git …`, que debe ir bien."""
        done = self.run("git", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commit(self, message: str = "cambio") -> None:
        """Guarda todo en git."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)

    def edit(self, name: str, old: str, new: str) -> None:
        """Cambia `old` por `new` en un fichero que debe contenerlo."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


def make_project(folder: Path) -> Project:
    """Crea en `folder` el proyecto con una tubería corta, guardado en su propio git."""
    root = folder / "project"
    for name in COPIED:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (root / "dvc.yaml").write_text(PIPELINE, encoding="utf-8")
    (root / "stages/short.py").write_text(SHORT_STAGE, encoding="utf-8")
    (root / "input.txt").write_text("hola\n", encoding="utf-8")
    (folder / "home").mkdir()
    made = Project(root, folder / "home")
    made.git("init", "--quiet", "--initial-branch=main")
    made.commit("inicio")
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Un proyecto propio de la prueba."""
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un conjunto como los del Hub, en una carpeta; nadie lo cambia."""
    return write_hub(tmp_path_factory.mktemp("hub") / "conjunto")


@pytest.fixture
def hub_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Un proyecto vacío donde descargar, con la llamada a DVC sustituida."""
    folder = tmp_path / "proyecto"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(
        raw, "run_dvc", lambda arguments, root: Path("dvc").write_text(*arguments[:1])
    )
    return folder
