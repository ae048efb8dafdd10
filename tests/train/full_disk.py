"""Guardar en un disco realmente lleno: `python -m tests.train.full_disk CARPETA`.

La carpeta debe ser un sistema de ficheros pequeño y vacío. Deja cada vez menos sitio libre, guarda
y comprueba que lo anterior sigue entero. Escribe cuántos guardados salieron y cuántos no.
"""

import os
import shutil
import sys
from pathlib import Path

from enlace.train import checkpoint
from enlace.train.checkpoint import newest_complete
from enlace.train.writer import CheckpointWriter
from tests.train.checkpoints import CPU, save_small, small_state, small_tensors, steps_in
from tests.train.test_save_faults import CONFIG

VALUES = 16_000


def save(run_dir: Path, step: int) -> bool:
    writer = CheckpointWriter(run_dir, CONFIG, CPU, lambda _: None, sync=lambda: None)
    tensors = small_tensors(step, VALUES)
    writer.save(small_state(step), tensors, tensors)
    writer._join()
    return writer.newest is not None


def main() -> None:
    """Llena el disco con un lastre de cada tamaño."""
    folder = Path(sys.argv[1])
    page = os.statvfs(folder).f_frsize
    # Sin la comprobación previa, para que sea el sistema quien diga que no cabe, y dónde.
    checkpoint.check_free = lambda folder, needed: None  # type: ignore[attr-defined]
    counts = [0, 0]
    for free in range(0, 200_000, page):
        run_dir = folder / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        (folder / "lastre").unlink(missing_ok=True)
        save_small(run_dir, 1)
        save_small(run_dir, 2)
        with (folder / "lastre").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, shutil.disk_usage(folder).free - free)
        done = save(run_dir, 3)
        counts[not done] += 1
        (folder / "lastre").unlink()
        found = newest_complete(run_dir)
        assert found is not None
        assert found.rejected == ()
        assert found.state["step"] == (3 if done else 2), free
        assert steps_in(run_dir) == ([2, 3] if done else [1, 2]), free
    sys.stdout.write(f"{counts[0]} {counts[1]}\n")


if __name__ == "__main__":
    main()
