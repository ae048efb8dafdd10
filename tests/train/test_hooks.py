"""Las órdenes al acabar: qué saben, y que nada de lo que hagan cambia el resultado."""

import sys
from pathlib import Path
from typing import Any

import pytest

from enlace.errors import CheckpointError, UnfinishedError
from enlace.train.hooks import hooks, run_hook
from tests.support import make_config
from tests.train.checkpoints import save_small

_WRITE = (
    "import os, sys; open(sys.argv[1], 'a').write('|'.join(os.environ[f'ENLACE_{k}'] for k in "
    "('RUN', 'STATUS', 'STEP', 'MESSAGE')))"
)


def run(tmp_path: Path, error: BaseException | None, **more: Any) -> tuple[str, list[str]]:
    """Lo que escribió la orden y lo que se dijo de ella."""
    command = [sys.executable, "-S", "-c", _WRITE, str(tmp_path / "dicho")]
    changes = {"train.on_finish": command, "train.on_fail": command} | more
    said: list[str] = []
    with hooks(make_config(changes).train, "demo", lambda: tmp_path, said.append):
        if error is not None:
            raise error
    return (tmp_path / "dicho").read_text(encoding="utf-8"), said


def test_al_terminar_sabe_el_run_y_el_paso(tmp_path: Path) -> None:
    save_small(tmp_path, 12)
    text, said = run(tmp_path, None)
    assert text == "demo|finished|12|entrenamiento terminado"
    assert said == [f"ejecutado {sys.executable} (finished)"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnfinishedError("parado", 143), "demo|stopped|0|parado"),
        (CheckpointError("sin sitio"), "demo|failed|0|sin sitio"),
        (ZeroDivisionError("x"), "demo|failed|0|ZeroDivisionError: x"),
    ],
)
def test_al_fallar_sabe_por_que_y_el_fallo_sigue(
    error: Exception, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as caught:
        run(tmp_path, error)
    assert caught.value is error
    assert (tmp_path / "dicho").read_text(encoding="utf-8") == expected


def test_un_segundo_ctrl_c_no_ejecuta_nada(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, KeyboardInterrupt())
    assert not (tmp_path / "dicho").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/existe"], "no se ha podido ejecutar /no/existe"),
        (["false"], "acabó con el código 1"),
        (["sleep", "60"], "no acabó en 0.1 s"),
        (["true", "\0"], "no se ha podido ejecutar true"),
    ],
)
def test_una_orden_que_falla_solo_se_dice(command: list[str], words: str) -> None:
    assert words in run_hook(command, {"ENLACE_STATUS": "finished"}, 0.1 if "60" in command else 9)


def test_sin_orden_no_se_dice_nada(tmp_path: Path) -> None:
    said: list[str] = []
    with hooks(make_config().train, "demo", lambda: tmp_path, said.append):
        pass
    assert said == []
