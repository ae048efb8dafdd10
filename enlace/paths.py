"""Dónde vive cada cosa. Las rutas que DVC también conoce las compara una prueba con `dvc.yaml`."""

import os
from pathlib import Path

CORPUS = Path("data/corpus")
TOKENIZER = Path("data/tokenizer")
SHARDS = Path("data/shards")
RAW = Path("data/raw")

VERDICT = Path("reports/preflight/verdict.json")
PREFLIGHT_REPORT = Path("reports/preflight/report.json")
CORPUS_REPORT = Path("reports/corpus.json")
PRETRAIN_REPORTS = Path("reports/pretrain")
EVALUATION_REPORTS = Path("reports/evaluation")
EXPORT_REPORT = Path("reports/export.json")

MODEL = Path("checkpoints/model")
STATE = Path("checkpoints/state")
EXPORTED = Path("exported")


def shared_root() -> Path:
    """La raíz del repositorio de verdad, también dentro de un experimento temporal de DVC.

    DVC pone `DVC_ROOT` en el entorno de cada etapa, y en los experimentos apunta al repositorio
    padre: así una carpeta de run sobrevive al experimento que la empezó.
    """
    return Path(os.environ.get("DVC_ROOT") or Path.cwd())


def runs_folder() -> Path:
    """La carpeta de los runs en curso y terminados (fuera de git y de DVC)."""
    return shared_root() / "runs"


def private_folder() -> Path:
    """Lo que esta máquina recuerda (sellos del preflight), fuera de git y de DVC."""
    return shared_root() / ".enlace"
