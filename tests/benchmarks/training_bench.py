"""ENLACE y los demás, uno al lado del otro: velocidad, memoria, pérdida y lectura.

    make bench [WORK="small smoke"] [PAIRS=7] [ONLY="transformers litgpt"] [DEVICE=cuda]
               [MALLOC=system]

Cada contrincante vive en su proceso y trabaja por turnos; mientras, los demás esperan sin gastar
CPU. Deja `bench.json`, `bench.md` y `bench.svg` en `reports/`. Las cifras solo valen en una máquina
sin otro trabajo; los cocientes aguantan algo más.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from enlace.files import write_text
from tests.benchmarks import training_figures as figures
from tests.benchmarks.training_picture import picture_svg
from tests.benchmarks.training_pool import MissingPeerError, Worker
from tests.benchmarks.training_rounds import Comparison, compare
from tests.benchmarks.training_table import bars_table, report
from tests.benchmarks.training_worker import MACHINE, OURS, STEP_PEERS
from tests.benchmarks.training_works import (
    DEFAULT_WORKS,
    LOSS_WORKS,
    STREAM_WORK,
    WORKS,
    Setup,
    Work,
)

PAIRS = 7
_PACKAGES = ("torch", "transformers", "accelerate", "litgpt", "lightning", "x-transformers")
_MALLOC = {"keep": "la guardan todos", "system": "cada uno como viene"}
_LOGITS_COPIES = 3
"""Veces que la pérdida corriente llega a tener los logits enteros en memoria, por arriba."""


def main() -> None:
    """Lee los argumentos, mide los trabajos y escribe los resultados."""
    options = _options()
    setups = {
        name: Setup(
            WORKS[name], options.device, options.profile, options.threads, "", options.malloc
        )
        for name in options.work
    }
    about = describe(options)
    comparisons: dict[str, Comparison] = {}
    for name, setup in setups.items():
        comparisons[name] = measure(setup, options.pairs, options.only)
        write_results(options.output, about, comparisons)
    _say("\n" + "\n".join(bars_table(figures.bars(comparisons))))
    _say(f"\nescrito {options.output}/bench.md, bench.json y bench.svg")


def measure(setup: Setup, pairs: int, only: list[str] | None) -> Comparison:
    """Mide un trabajo, con los rivales que le tocan."""
    work = setup.work
    ours, rivals, machine = line_up(work, only)
    with tempfile.TemporaryDirectory(prefix="enlace-bench-") as folder:
        if work == STREAM_WORK:
            from tests.benchmarks.training_parts import write_shards

            write_shards(Path(folder), int(work.model_values()["vocab_size"]))

        def start(name: str) -> Worker:
            check_memory(work, name, setup.device)
            place = folder
            if work != STREAM_WORK:
                place = tempfile.mkdtemp(dir=folder)
            return Worker(name, replace(setup, folder=place))

        return compare(
            work,
            ours,
            rivals,
            pairs,
            start,
            machine=machine,
            profile=setup.device == "cuda",
            say=_say,
        )


def line_up(work: Work, only: list[str] | None) -> tuple[str, list[str], str | None]:
    """El nuestro, sus rivales y quién mide la máquina, según el trabajo."""
    if work in LOSS_WORKS:
        return "loss-enlace", ["loss-plain"], None
    if work == STREAM_WORK:
        return "stream-enlace", ["stream-nanogpt"], None
    return OURS, [name for name in STEP_PEERS if only is None or name in only], MACHINE


def check_memory(work: Work, name: str, device: str) -> None:
    """Deja fuera a quien formaría unos logits que no caben: mejor decirlo que llenar la máquina.

    Raises:
        MissingPeerError: no hay memoria libre para ese contrincante.
    """
    if device != "cpu" or name != "loss-plain":
        return
    need = 4 * _LOGITS_COPIES * work.tokens * int(work.model_values()["vocab_size"])
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > free:
        raise MissingPeerError(
            f"no medido: necesita {need / 2**30:.0f} GiB libres y hay {free / 2**30:.0f}"
        )


def write_results(output: Path, about: dict[str, str], comparisons: dict[str, Comparison]) -> None:
    """Escribe el JSON (todos los turnos), la tabla y la figura, cada vez que hay más."""
    output.mkdir(parents=True, exist_ok=True)
    bars = figures.bars(comparisons)
    values: dict[str, Any] = {
        "about": about,
        "works": {name: comparison.to_json() for name, comparison in comparisons.items()},
        "bars": [vars(bar) | {"holds": bar.holds} for bar in bars],
    }
    write_text(output / "bench.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    write_text(output / "bench.md", report(about, comparisons))
    write_text(output / "bench.svg", picture_svg(list(comparisons.values())).decode("utf-8"))


def describe(options: argparse.Namespace) -> dict[str, str]:
    """Lo que hay que saber para leer las cifras: fecha, máquina, versiones y ajustes."""
    return {
        "fecha": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "máquina": f"{cpu_name()}, {len(os.sched_getaffinity(0))} núcleos",
        "carga media al empezar": f"{os.getloadavg()[0]:.2f}".replace(".", ","),
        "dispositivo": f"{options.device}, perfil {options.profile}",
        "hilos": str(options.threads),
        "memoria que se suelta": _MALLOC[options.malloc],
        "parejas pedidas": str(options.pairs),
        "versiones": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "no instalado"


def cpu_name() -> str:
    """El modelo de CPU, según el sistema."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def card_profile() -> str:
    """La capa de `configs/hardware/` de la tarjeta que hay, según `enlace.cards`."""
    from enlace.backends import describe_device
    from enlace.cards import find_card

    seen = describe_device("cuda")
    assert seen.capability is not None
    clock = seen.clock_khz / 1e3
    card = find_card(seen.name, seen.capability, seen.memory_bytes, seen.sm_count, clock)
    if card is None or card.profile is None:
        sys.exit(f"enlace: no hay perfil para {seen.name}; di uno: make bench PROFILE=a100 …")
    return card.profile


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=DEFAULT_WORKS)
    parser.add_argument("--only", nargs="+", choices=STEP_PEERS, help="solo estos rivales")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--profile", help="capa de configs/hardware/; por defecto, la que toca")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--malloc", choices=list(_MALLOC), default="keep")
    parser.add_argument("--output", type=Path, default=Path("reports"))
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs debe ser al menos 1")
    if options.profile is None:
        options.profile = "cpu" if options.device == "cpu" else card_profile()
    return options


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
