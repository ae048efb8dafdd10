"""Clones de verdad del proyecto, con HOME y caché propios, y los procesos que corren en ellos."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.load import load_config
from enlace.config.yaml_io import read_yaml
from tests.pipeline.support_process import PATIENCE_SECONDS, Done, Started

ROOT = Path(__file__).parents[2]
STEPS = 240
# Un modelo de milisegundos por paso, que guarda a menudo y que aun así dura lo bastante como para
# poder cortarlo a medias.
TINY = (
    "hardware.memory_gib=2 hardware.memory_margin=0.01 hardware.threads=1 hardware.micro_batch=2 "
    "hardware.preflight.steps=2 model.vocab_size=300 model.n_layer=1 model.n_head=2 "
    "model.n_kv_head=1 model.d_model=16 model.seq_len=16 model.ffn_multiple_of=16 "
    f"train.steps={STEPS} train.tokens_per_step=64 train.warmup=2 train.log_every=20 "
    "train.eval_every=120 train.eval_tokens=64 train.save_every=20 data.workers=1 "
    "data.evaluation.prompts=[Había] data.evaluation.max_new_tokens=2"
)
_POLL_SECONDS = 0.005


class Clone:
    """Un clon del proyecto y cómo se le dan órdenes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "project"
        self.home = folder / "home"
        self._started: list[subprocess.Popen[bytes]] = []
        self.home.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "OMP_WAIT_POLICY": "passive",
            "DVC_SITE_CACHE_DIR": str(self.home / "dvc"),
            "DVC_NO_ANALYTICS": "1",
            "NO_COLOR": "1",
            "GIT_AUTHOR_NAME": "Prueba",
            "GIT_AUTHOR_EMAIL": "prueba@example.org",
            "GIT_COMMITTER_NAME": "Prueba",
            "GIT_COMMITTER_EMAIL": "prueba@example.org",
        }

    def start(self, *command: str, extra: Mapping[str, str | None] | None = None) -> Started:
        """Lanza una orden sin esperarla; un valor None en `extra` quita la variable."""
        environment = {**self.environment, **(extra or {})}
        output = self.folder / f"output-{time.monotonic_ns()}.txt"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env={name: value for name, value in environment.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return Started(process, output)

    def run(self, *command: str) -> Done:
        """Ejecuta una orden y espera a que acabe."""
        return self.start(*command).finish()

    def ok(self, *command: str) -> Done:
        """Una orden que debe ir bien."""
        done = self.run(*command)
        assert done.code == 0, done.text
        return done

    def dvc(self, *arguments: str) -> Done:
        """`dvc …`, que debe ir bien."""
        return self.ok(*DVC, *arguments)

    def refused(self, *command: str) -> str:
        """Una orden que debe fallar sin traza; devuelve lo que dice."""
        done = self.run(*command)
        assert done.code != 0, done.text
        assert "Traceback" not in done.text
        return done.text

    def set_params(self, **changes: object) -> None:
        """Cambia hojas de `params.yaml` como lo haría una persona con su editor."""
        path = self.root / "params.yaml"
        text = path.read_text(encoding="utf-8")
        for key, value in changes.items():
            text, count = re.subn(rf"^(  {key}:) .*$", rf"\1 {value}", text, flags=re.MULTILINE)
            assert count == 1, key
        path.write_text(text, encoding="utf-8")

    def rate(self) -> float:
        """La tasa de aprendizaje que pide `params.yaml`."""
        return load_config(self.root / "params.yaml").train.lr

    def git(self, *arguments: str) -> str:
        """`git …`, que debe ir bien."""
        return self.ok("git", *arguments).text

    def commit(self) -> None:
        """Guarda todo en git."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "cambio")

    def edit(self, name: str, old: str, new: str) -> None:
        """Cambia `old` por `new` en un fichero que debe contenerlo una vez."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name}: {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def locked(self) -> dict[str, Any]:
        """Las etapas que constan en `dvc.lock`."""
        path = self.root / "dvc.lock"
        stages: dict[str, Any] = read_yaml(path)["stages"] if path.is_file() else {}
        return stages

    def run_folders(self) -> list[Path]:
        """Las carpetas de run (sin los enlaces), de la más antigua a la más nueva."""
        # Los que empiezan por punto son enlaces a medio poner, que desaparecen mientras se mira.
        found = [path for path in self.root.glob("runs/[!.]*") if not path.is_symlink()]
        return sorted(found, key=lambda path: path.stat().st_ctime_ns)

    def newest_step(self) -> int:
        """El paso del checkpoint más avanzado de la carpeta de run más nueva; 0 si no hay."""
        folders = self.run_folders()
        steps = [
            int(path.name.removeprefix("step_"))
            for path in (folders[-1].glob("checkpoints/step_*") if folders else ())
        ]
        return max(steps, default=0)

    def weights(self) -> bytes:
        """El fichero de pesos entregado."""
        return (self.root / "checkpoints/model/model.safetensors").read_bytes()

    def manifest(self) -> dict[str, Any]:
        """El manifiesto del modelo entregado."""
        text = (self.root / "checkpoints/model/manifest.json").read_text(encoding="utf-8")
        manifest: dict[str, Any] = json.loads(text)
        return manifest

    def table(self) -> str:
        """El TSV del entrenamiento, sin la velocidad, que es lo único que depende del reloj."""
        lines = (self.root / "reports/pretrain/train.tsv").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines]
        clock = rows[0].index("tokens_per_second")
        return "\n".join("\t".join(row[:clock] + row[clock + 1 :]) for row in rows)

    def processes(self) -> dict[int, str]:
        """Los procesos vivos que trabajan dentro del clon y su línea de órdenes."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                folder = (entry / "cwd").resolve(strict=True)
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:  # ya acabó, o es de otro usuario
                continue
            if folder.is_relative_to(self.root):
                found[int(entry.name)] = command.decode("utf-8", "replace").strip()
        return found

    def trainers(self) -> list[int]:
        """Los procesos de la etapa pretrain (no el shell que la lanza)."""
        return [
            pid
            for pid, command in self.processes().items()
            if "python" in command.split()[0] and command.endswith("stages.pretrain")
        ]

    def freeze_trainer(self, beyond: int = 0) -> int:
        """Espera a un checkpoint a medias posterior al paso `beyond`, congela al entrenador.

        Devuelve su pid.
        """
        limit = time.monotonic() + PATIENCE_SECONDS
        while not beyond < self.newest_step() < STEPS:
            assert time.monotonic() < limit, "no llegó a guardar, o acabó antes de verlo"
            time.sleep(_POLL_SECONDS)
        (pid,) = self.trainers()
        os.kill(pid, signal.SIGSTOP)
        assert self.newest_step() < STEPS, "el entrenamiento acabó antes de poder cortarlo"
        return pid

    def wait_until_idle(self) -> None:
        """Espera a que no quede ningún proceso en el clon; falla si alguno se queda huérfano."""
        limit = time.monotonic() + PATIENCE_SECONDS / 4
        while processes := self.processes():
            assert time.monotonic() < limit, f"siguen vivos: {processes}"
            time.sleep(_POLL_SECONDS)

    def destroy(self) -> None:
        """Termina lo que una prueba fallida dejó corriendo aquí y borra el clon."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def copy(self, folder: Path) -> "Clone":
        """Otro clon en el mismo punto. Los enlaces duros entre carpetas y caché se conservan."""
        made = Clone(folder)
        subprocess.run(["cp", "-a", self.root, made.root], check=True)
        return made


class FirstRun(NamedTuple):
    """Un clon después de su primer `dvc repro`, sin tocar, y lo que pasó."""

    clone: Clone
    output: Done
    git_status: str


DVC = (sys.executable, "-m", "dvc")
TRAINER = (sys.executable, "-m", "stages.pretrain")
ENLACE = (sys.executable, "-m", "enlace.cli")


def bare_clone(folder: Path) -> Clone:
    """`git clone` de este repositorio, con lo que aún no está en git, y el run diminuto puesto."""
    made = Clone(folder)
    source = str(ROOT)
    subprocess.run(["git", "clone", "--quiet", source, str(made.root)], check=True)
    for command in (
        ["diff", "--name-only", "-z", "HEAD"],
        ["ls-files", "-oz", "--exclude-standard"],
    ):
        listed = subprocess.run(
            ["git", *command], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            target = made.root / name
            if (ROOT / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)
            else:
                target.unlink(missing_ok=True)
    made.ok(*ENLACE, "params", "demo", "--set", TINY)
    made.commit()
    return made


def light_environment(clone: Clone) -> None:
    """Un `.venv` que usa el Python de estas pruebas y que make da por instalado."""
    folder = clone.root / ".venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    # El mismo entorno que el de las pruebas, visto desde aquí.
    prefix = Path(sys.prefix)
    (folder / "lib").symlink_to(prefix / "lib")
    if (prefix / "pyvenv.cfg").is_file():
        shutil.copy(prefix / "pyvenv.cfg", folder / "pyvenv.cfg")
    (folder / ".enlace-light").touch()


def before_training(finished: Clone, folder: Path) -> Clone:
    """Una copia de un clon terminado, devuelta al momento anterior a entrenar."""
    made = finished.copy(folder)
    for name in (
        "runs",
        "checkpoints",
        "reports/pretrain",
        "reports/evaluation",
        ".dvc/cache/runs",
    ):
        shutil.rmtree(made.root / name)
    lines = (made.root / "dvc.lock").read_text(encoding="utf-8").splitlines(keepends=True)
    kept, keep = [], True
    for line in lines:
        if re.match(r"  \w+:", line):
            keep = line.strip() not in ("pretrain:", "evaluate:")
        kept += [line] if keep else []
    (made.root / "dvc.lock").write_text("".join(kept), encoding="utf-8")
    assert set(made.locked()) == {"preflight", "corpus", "tokenize"}
    made.commit()
    return made
