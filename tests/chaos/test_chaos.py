"""El arnés encuentra lo que se pierde, y el entrenador no pierde nada."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.checks import (
    Survivors,
    check_death,
    check_table,
    leftovers,
    survivors,
)
from tests.chaos.executor import ROOT, Death
from tests.chaos.marks import Mark, Marks, Phase
from tests.chaos.plan import AMBUSHED, WAYS, Plan, draw
from tests.support import make_config
from tests.train.checkpoints import flip, save_small

CONFIG = make_config({"train.save_every": 5})
KILL = Plan((signal.SIGKILL,), None, 0.0, from_birth=False, gap=0.0, fresh=False)
TERM = KILL._replace(signals=(signal.SIGTERM,))
HARMLESS = Death(
    KILL,
    code=-signal.SIGKILL,
    sent=1,
    phase=Phase.STEP,
    running=True,
    resumed=5,
    steps=12,
    in_flight=-1,
    orphans=False,
    seconds=1.0,
)
"""Siguió desde el 5, guardó el 10 y murió en el 12."""


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def between(tmp_path: Path) -> tuple[Path, Survivors]:
    """Una carpeta de run tras la muerte `HARMLESS`, y lo que había en ella al nacer."""
    save_small(tmp_path, 5, evaluation={})
    before = survivors(tmp_path)
    save_small(tmp_path, 10, evaluation={})
    return tmp_path, before


def problems(death: Death, between: tuple[Path, Survivors]) -> list[str]:
    folder, before = between
    return list(check_death(death, before, survivors(folder), CONFIG.train))


@pytest.mark.slow
def test_una_falta_plantada_se_descubre_y_sale_con_error() -> None:
    done = chaos("--kills", "4", "--seed", "3", "--cases", "fp32", "--plant", "paso")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FALLO: 000-fp32" in done.stdout
    assert "lo más nuevo era el" in done.stdout


def test_una_muerte_sin_danos_no_da_problemas(between: tuple[Path, Survivors]) -> None:
    assert problems(HARMLESS, between) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resumed": 0}, "siguió desde el paso 0 y lo más nuevo era el 5"),
        ({"steps": 16}, "pierde 6 pasos"),
        ({"code": 0, "steps": 10}, "acabó con el código 0"),
        ({"code": 1}, "acabó con el código 1"),
        ({"plan": TERM, "code": -signal.SIGTERM}, "acabó con el código -15"),
        ({"plan": TERM, "code": 143}, "pierde 2 pasos"),
        ({"sent": 0}, "acabó con el código -9"),
        ({"orphans": True}, "procesos vivos"),
    ],
)
def test_cada_dano_se_dice(
    between: tuple[Path, Survivors], change: dict[str, object], said: str
) -> None:
    (found,) = problems(HARMLESS._replace(**change), between)  # type: ignore[arg-type]
    assert said in found


def test_los_pasos_dados_durante_un_guardado_se_pueden_repetir(
    between: tuple[Path, Survivors],
) -> None:
    assert problems(HARMLESS._replace(steps=18, in_flight=15), between) == []
    (found,) = problems(HARMLESS._replace(steps=19, in_flight=16), between)
    assert "solo podía perder 8" in found


def test_un_checkpoint_anterior_que_falta_o_se_rompe_se_dice(
    between: tuple[Path, Survivors],
) -> None:
    folder, _ = between
    older = folder / "checkpoints/step_00000005"
    flip(older / "model.safetensors", 900)
    assert any("roto" in text for text in problems(HARMLESS, between))
    shutil.rmtree(older)
    assert problems(HARMLESS, between) == ["ha desaparecido step_00000005"]


def test_una_fila_que_falta_o_se_repite_se_dice() -> None:
    header: tuple[str, ...] = ("step", "loss")
    rows = [header, *((str(step), "0") for step in range(1, CONFIG.train.steps + 1))]
    assert list(check_table(rows, rows, CONFIG)) == []
    (found,) = check_table([*rows[:3], rows[2], *rows[4:]], rows, CONFIG)
    assert "faltan los pasos [3] y se repiten [2]" in found
    (found,) = check_table([*rows[:3], ("3", "1"), *rows[4:]], rows, CONFIG)
    assert "la fila del paso 3" in found


def test_un_temporal_olvidado_se_dice(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert list(leftovers(tmp_path)) == []
    (tmp_path / "runs/.tmp-algo").touch()
    assert list(leftovers(tmp_path)) == ["queda un temporal: runs/.tmp-algo"]


def test_los_planes_salen_de_la_semilla_y_los_hay_de_todas_clases() -> None:
    plans = [draw(1, training, life) for training in range(20) for life in range(20)]
    assert plans == [draw(1, training, life) for training in range(20) for life in range(20)]
    assert plans != [draw(2, training, life) for training in range(20) for life in range(20)]
    assert {plan.signals for plan in plans} == {way for way, _ in WAYS}
    assert {plan.ambush.phase for plan in plans if plan.ambush} == set(AMBUSHED)
    assert {plan.fresh for plan in plans} == {plan.from_birth for plan in plans} == {True, False}


def test_las_marcas_sobreviven_a_un_sigkill(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from tests.chaos.marks import *\n"
        "marks = Marks(Path('marcas')); marks.reset(); marks[Mark.STEPS] = 7\n"
        "marks[Mark.LOOP] = Phase.STEP; marks[Mark.WRITER] = Phase.RENAME\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    with Marks(tmp_path / "marcas") as marks:
        assert marks[Mark.STEPS] == 7
        assert marks.phase is Phase.RENAME
    with Marks(tmp_path / "marcas") as marks:
        marks[Mark.WRITER] = Phase.NO_SAVE
        assert marks.phase is Phase.STEP


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "said"), [("azar", "idéntico"), ("poda", "ha desaparecido")])
def test_las_demas_faltas_tambien_se_descubren(plant: str, said: str) -> None:
    done = chaos("--kills", "20", "--seed", "3", "--cases", "fp32", "--plant", plant)
    assert done.returncode == 1, done.stdout + done.stderr
    assert said in done.stdout


@pytest.mark.slow
def test_tras_muchas_muertes_nada_se_pierde() -> None:
    done = chaos("--kills", "60", "--seed", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "idénticos al seguido: sí" in done.stdout
