"""Mata a un entrenador muchas veces y comprueba que no se pierde nada.

    make chaos [KILLS=200] [SEED=…]

Con la misma semilla se repiten los mismos planes; dónde caen los que van por reloj depende de la
máquina. Sale con un código distinto de cero si algo falla.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from enlace.errors import user_errors
from enlace.process import stopping
from tests.chaos.campaign import Campaign
from tests.chaos.faults import PLANTED
from tests.chaos.life import CASES
from tests.chaos.marks import Phase
from tests.chaos.report import describe_campaign

MUST_HIT = (Phase.WRITING, Phase.PRUNING)
SEEDS = 1_000_000


def main() -> None:
    """Lee los argumentos, corre la campaña y escribe el resumen."""
    parser = argparse.ArgumentParser(prog="tests.chaos")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--plant", choices=PLANTED)
    arguments = parser.parse_args()
    seed = random.randrange(SEEDS) if arguments.seed is None else arguments.seed
    say(f"caos: semilla {seed} (repítela con SEED={seed})")
    started = time.monotonic()
    with user_errors(), stopping(), tempfile.TemporaryDirectory(prefix="enlace-chaos-") as folder:
        campaign = Campaign(
            Path(folder), arguments.kills, seed, tuple(arguments.cases), arguments.plant, say
        )
        totals = campaign.run()
    hit = {death.phase for death in totals.deaths}
    if not totals.failures and not hit.issuperset(MUST_HIT):
        totals.failures.append("ninguna muerte escribiendo o podando: sube KILLS")
    say(describe_campaign(totals, seed, time.monotonic() - started))
    sys.exit(1 if totals.failures else 0)


def say(line: str) -> None:
    """Escribe una línea y no espera a llenar el búfer."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
