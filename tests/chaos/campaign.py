"""Una campaña: entrenamientos cortados una y otra vez hasta haber dado tantas muertes."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.checks import (
    Survivors,
    check_death,
    check_end,
    describe_death,
    lost_steps,
    run_folder,
    survivors,
)
from tests.chaos.executor import LOG, Death, in_child, run_life
from tests.chaos.life import CASES, case_config
from tests.chaos.plan import draw
from tests.data.builders import prepare, stories

DOCUMENTS = 40
MAX_LIVES = 400
_TAIL_CHARS = 2000


@dataclass
class Totals:
    """Lo que ha pasado en una campaña."""

    deaths: list[Death] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    lives: int = 0
    trainings: int = 0
    identical: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass
class Campaign:
    """Mata `kills` veces.

    Args:
        folder: carpeta vacía en la que trabajar.
        kills: cuántas muertes.
        seed: de la que salen todas.
        cases: qué casos de `CASES`, por turno.
        planted: una falta de `PLANTED` para todas las vidas que no son procesos nuevos.
        say: recibe una línea por entrenamiento acabado.
    """

    folder: Path
    kills: int
    seed: int
    cases: tuple[str, ...] = tuple(CASES)
    planted: str | None = None
    say: Callable[[str], None] = lambda line: None
    totals: Totals = field(default_factory=Totals)
    _quiet: dict[str, tuple[Path, float]] = field(default_factory=dict)

    def run(self) -> Totals:
        """La campaña entera; para en el primer entrenamiento con fallos."""
        in_child(self.folder / "data.txt", self._prepare)
        while len(self.totals.deaths) < self.kills and not self.totals.failures:
            number = self.totals.trainings
            self._training(number, self.cases[number % len(self.cases)])
        return self.totals

    def _prepare(self) -> int:
        prepare(self.folder / "data", stories(DOCUMENTS))
        return 0

    def _training(self, number: int, case: str) -> None:
        quiet, seconds = self._quiet_run(case)
        home = self._home(f"{number:03d}-{case}")
        config, totals = case_config(case), self.totals
        before = Survivors({}, ())
        for life in range(MAX_LIVES):
            plan = None
            if len(totals.deaths) < self.kills:
                plan = draw(self.seed, number, life)
            death = run_life(home, case, plan, seconds, self.planted)
            after = survivors(run_folder(home, config))
            totals.lives += 1
            if death.sent and death.code:
                totals.deaths.append(death)
                totals.lost.append(lost_steps(death, after))
            problems = list(check_death(death, before, after, config.train))
            if death.code == 0 and not problems:
                problems = list(check_end(home, quiet, config))
            if problems:
                self._fail(home, number, life, death, problems)
                return
            before = after
            if death.code == 0:
                totals.trainings += 1
                totals.identical += 1
                self.say(f"{home.name}: {life + 1} vidas, {len(totals.deaths)} muertes")
                shutil.rmtree(home)
                return
        totals.failures.append(f"{home.name}: no acaba en {MAX_LIVES} vidas")

    def _fail(self, home: Path, number: int, life: int, death: Death, problems: list[str]) -> None:
        output = (home / LOG).read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARS:]
        self.totals.trainings += 1
        self.totals.failures += [
            f"{home.name}, vida {life} ({describe_death(death)}): {'; '.join(problems)}",
            f"lo último que escribió:\n{output}",
        ]

    def _quiet_run(self, case: str) -> tuple[Path, float]:
        """El entrenamiento al que nadie toca, y lo que dura en segundos."""
        if case not in self._quiet:
            home = self._home(f"seguido-{case}")
            started = time.monotonic()
            death = run_life(home, case, None, 0.0)
            if death.code:
                raise RuntimeError((home / LOG).read_text(encoding="utf-8"))
            self._quiet[case] = (home, time.monotonic() - started)
        return self._quiet[case]

    def _home(self, name: str) -> Path:
        home = self.folder / name
        home.mkdir()
        # Lo que DVC tendría en data/: el entrenador lo lee por esa ruta.
        (home / "data").symlink_to(self.folder / "data", target_is_directory=True)
        return home
