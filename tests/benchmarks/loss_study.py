"""¿Cuánta pérdida se compra con cada segundo? AdamW y Muon, WSD y coseno, y transformers.

    python -m tests.benchmarks.loss_study prepare CARPETA TEXTOS.jsonl.gz… [--size small]
    python -m tests.benchmarks.loss_study sweep CARPETA [--jobs 2]
    python -m tests.benchmarks.loss_study table CARPETA
    python -m tests.benchmarks.loss_study run CARPETA --recipe muon-wsd --lr 0.008 --seed 1

`prepare` deja los shards que leen todos y el nombre del modelo: `study`, de 1,3 M de parámetros, o
`small`, con el que se confirma lo que diga el primero. `run` hace un entrenamiento, con un hilo, y
lo apunta en `runs.jsonl`; `sweep` hace los que faltan, en el orden de `loss_study_plan.py`, y se
puede parar y volver a empezar: lo apuntado no se repite. `table` escribe las tablas de
`docs/log.md`.
"""

import argparse
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.loss_study_plan import RECIPES, STEPS, Job, job_of, pending, read_losses
from tests.benchmarks.loss_study_records import append_record, read_records

ROOT = Path(__file__).parents[2]
SIZE = "size"
_POLL_SECONDS = 0.5
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def prepare(folder: Path, texts: list[Path], size: str = "study") -> None:
    """Reparte y codifica los textos con un vocabulario propio, del tamaño que pide el modelo."""
    from tests.benchmarks.loss_study_run import SIZES
    from tests.data.builders import bpe
    from tests.data.builders import prepare as build

    changes = bpe(SIZES[size].vocab_size)
    changes |= {"data.include": ["*.jsonl.gz", "*.jsonl"], "data.val_fraction": 0.007}
    changes |= {"data.tokenizer.train_megabytes": 8.0, "data.shard_tokens": 1 << 22}
    build(folder, {path.name: path.read_bytes() for path in texts}, changes)
    (folder / SIZE).write_text(size + "\n", encoding="utf-8")


def size_name(folder: Path) -> str:
    """El nombre del modelo con el que se preparó la carpeta."""
    path = folder / SIZE
    return path.read_text(encoding="utf-8").strip() if path.exists() else "study"


def run_job(folder: Path, job: Job, size: Any = None) -> bool:
    """Hace un entrenamiento y lo apunta; False si ya lo estaba."""
    if job in {job_of(record) for record in read_records(folder)}:
        return False
    import torch

    from enlace.provenance import git_state
    from tests.benchmarks.loss_study_run import SIZES, run

    torch.set_num_threads(1)
    start = time.perf_counter()
    figures = run(folder / "shards", job, size or SIZES[size_name(folder)])
    figures |= {"wall_seconds": round(time.perf_counter() - start, 1), "git": git_state(ROOT)}
    figures |= {"load": os.getloadavg()[0], "date": datetime.now().astimezone().isoformat()}
    append_record(folder, figures)
    return True


def sweep(folder: Path, jobs: int) -> list[Job]:
    """Hace todo lo que falta, cada entrenamiento en un proceso; devuelve los que se rompieron."""
    running: dict[Job, subprocess.Popen[bytes]] = {}
    broken: list[Job] = []
    while True:
        for job, process in list(running.items()):
            if process.poll() is not None:
                del running[job]
                broken += [job] if process.returncode else []
        left = pending(read_losses(read_records(folder)), size_name(folder))
        waiting = [job for job in left if job not in running and job not in broken]
        if not waiting and not running:
            return broken
        for job in waiting[: jobs - len(running)]:
            say(f"{datetime.now():%H:%M:%S} {job}")
            running[job] = subprocess.Popen(command(folder, job), env=os.environ | _ONE_THREAD)
        time.sleep(_POLL_SECONDS)


def command(folder: Path, job: Job) -> list[str]:
    """La orden que hace un entrenamiento."""
    module = [sys.executable, "-m", "tests.benchmarks.loss_study", "run", str(folder)]
    return module + [
        text for key, value in job._asdict().items() for text in (f"--{key}", str(value))
    ]


def say(line: str) -> None:
    """Una línea por la salida."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """La línea de órdenes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("prepare", "run", "sweep", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path, nargs="*")
    parser.add_argument("--size", choices=("study", "small"), default="study")
    parser.add_argument("--recipe", choices=RECIPES)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if options.action == "prepare":
        prepare(options.folder, options.texts, options.size)
    elif options.action == "run":
        if options.recipe is None or options.lr is None:
            parser.error("run necesita --recipe y --lr")
        job = Job(options.recipe, options.lr, options.seed, options.steps)
        say("apuntado" if run_job(options.folder, job) else "ya estaba apuntado")
    elif options.action == "table":
        from tests.benchmarks.loss_study_table import tables

        say(tables(read_records(options.folder)))
    elif broken := sweep(options.folder, options.jobs):
        sys.exit(f"se rompieron, y no están apuntados: {broken}")


if __name__ == "__main__":
    main()
