"""El registro: TSV exacto, métricas enteras, reloj que sobrevive y consola legible."""

import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enlace.errors import EnlaceError
from enlace.figures import rough_duration
from enlace.progress import COLUMNS, Row, StepClock, TrainLog, describe


def row(step: int, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "step": step,
        "tokens": 100 * step,
        "loss": 1 / 3,
        "lr": 1e-5,
        "grad_norm": 0.1,
        "scale": 1.0,
        "skipped": 0,
        "spikes": 0,
        "tokens_per_second": None,
        "batch": "00ff",
        "val_loss": None,
    }
    return Row(**(values | changes))


def open_log(folder: Path, terminal: bool = False) -> tuple[TrainLog, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=200)
    log = TrainLog(
        folder, steps=10, tokens_per_step=100, reports_dir=folder / "informes", console=console
    )
    log.restart(0, StepClock().state_dict(), {})
    return log, output


def table(folder: Path) -> list[list[str]]:
    return [line.split("\t") for line in (folder / "train.tsv").read_text().splitlines()]


def metrics(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return value


def test_la_tabla_guarda_todos_los_bits(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    log.record(row(1, val_loss=math.pi), {"val_loss": math.pi})
    header, cells = table(tmp_path)
    assert tuple(header) == COLUMNS
    values = dict(zip(COLUMNS, cells, strict=True))
    assert float(values["loss"]) == 1 / 3
    assert float(values["val_loss"]) == math.pi
    assert values["tokens_per_second"] == ""
    assert values["batch"] == "00ff"


def test_los_informes_repiten_la_tabla_y_las_metricas(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    log.record(row(1), {"val_loss": 2.0, "val_bits_per_byte": 1.5})
    log.record(row(2), {})
    assert table(tmp_path / "informes") == table(tmp_path)
    found = metrics(tmp_path / "informes")
    assert found == metrics(tmp_path)
    assert (found["step"], found["loss"]) == (2, 1 / 3)
    assert (found["val_loss"], found["val_bits_per_byte"]) == (2.0, 1.5)


def test_las_metricas_de_un_paso_saltado_siguen_siendo_json(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    log.record(row(1, grad_norm=math.inf, loss=math.nan, skipped=1), {"val_loss": math.nan})
    assert metrics(tmp_path)["grad_norm"] is None
    assert metrics(tmp_path)["val_loss"] is None
    assert dict(zip(COLUMNS, table(tmp_path)[1], strict=True))["grad_norm"] == "inf"


def test_al_reanudar_la_tabla_se_recorta_al_paso(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    for step in range(1, 6):
        log.record(row(step), {})
    with (tmp_path / "train.tsv").open("ab") as stream:
        stream.write(b"\0\0\0\n\xff" + b"\t" * (len(COLUMNS) - 1) + b"\n" + b"2\t600\t0.3")
    resumed, _ = open_log_at(tmp_path, 3)
    assert [cells[0] for cells in table(tmp_path)[1:]] == ["1", "2", "3"]
    assert table(tmp_path / "informes") == table(tmp_path)
    resumed.record(row(4), {})
    assert [cells[0] for cells in table(tmp_path / "informes")[1:]] == ["1", "2", "3", "4"]


def open_log_at(folder: Path, step: int) -> tuple[TrainLog, io.StringIO]:
    output = io.StringIO()
    log = TrainLog(
        folder,
        steps=10,
        tokens_per_step=100,
        reports_dir=folder / "informes",
        console=Console(file=output, width=200),
    )
    log.restart(step, StepClock(seconds=5.0).state_dict(), {"val_loss": 9.0})
    return log, output


def test_al_reanudar_vuelven_los_informes_que_dvc_borro(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    log.record(row(1), {"val_loss": 9.0})
    before = metrics(tmp_path)
    for file in (tmp_path / "informes").iterdir():
        file.unlink()
    open_log_at(tmp_path, 1)
    assert metrics(tmp_path / "informes") == before
    assert table(tmp_path / "informes") == table(tmp_path)


class Ticks:
    """Un reloj que avanza lo que se le diga."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def test_el_reloj_deja_fuera_los_primeros_pasos_de_cada_proceso() -> None:
    ticks = Ticks()
    clock = StepClock(now=ticks)
    for seconds in (50.0, 20.0, 2.0, 2.0):
        ticks.time += 1000.0
        with clock.measure(100):
            ticks.time += seconds
    assert clock.seconds == 74.0
    assert clock.tokens_per_second == 200 / 4.0
    resumed = StepClock(now=ticks)
    resumed.load_state_dict(clock.state_dict())
    for seconds in (30.0, 30.0, 4.0):
        with resumed.measure(100):
            ticks.time += seconds
    assert resumed.seconds == 74.0 + 64.0
    assert resumed.tokens_per_second == 300 / 8.0


def test_un_paso_que_falla_no_cuenta_y_sin_pasos_no_hay_velocidad() -> None:
    clock = StepClock()
    assert clock.tokens_per_second is None
    with pytest.raises(ValueError, match="fallo"), clock.measure(100):
        raise ValueError("fallo")
    assert clock.seconds == 0.0


def test_sin_terminal_se_escriben_lineas_sueltas(tmp_path: Path) -> None:
    log, output = open_log(tmp_path)
    log.clock.warm_seconds, log.clock.warm_tokens = 1.0, 10
    with log:
        log.record(row(4, tokens_per_second=1234567.0, skipped=2, val_loss=2.5), {})
        log.say("aviso: [corchetes] que rich no debe interpretar")
    lines = output.getvalue().splitlines()
    assert lines == [
        "paso 4/10 · pérdida 0,3333 · lr 1,00e-05 · norma 0,10 · validación 2,5000 · saltados 2"
        " · 1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567 tokens/s · quedan 1 min",
        "aviso: [corchetes] que rich no debe interpretar",
    ]


def test_en_una_terminal_hay_barra(tmp_path: Path) -> None:
    log, output = open_log(tmp_path, terminal=True)
    with log:
        log.record(row(4), {})
        log.say("un mensaje")
    assert "4/10" in output.getvalue()
    assert "un mensaje" in output.getvalue()
    assert "\x1b[" in output.getvalue()


def test_las_personas_leen_coma_y_las_maquinas_punto(tmp_path: Path) -> None:
    log, output = open_log(tmp_path)
    log.record(row(4, tokens_per_second=12345.5, val_loss=2.5), {})
    assert "." not in output.getvalue()
    assert "," not in (tmp_path / "train.tsv").read_text("utf-8")
    assert json.loads((tmp_path / "metrics.json").read_text("utf-8"))["val_loss"] == 2.5


def test_al_terminar_no_queda_nada() -> None:
    assert "quedan" not in describe(row(10), 10, 0.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (45, "45 s"),
        (59.7, "1 min"),
        (61, "1 min"),
        (3590, "1 h 00 min"),
        (3 * 3600 + 300, "3 h 05 min"),
        (52 * 3600, "2 d 4 h"),
    ],
)
def test_las_duraciones_se_leen(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text


class Broken(io.StringIO):
    """Una salida que falla al escribir, como una tubería cerrada o un disco lleno."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "lleno"), OSError(5, "muda")])
def test_una_salida_rota_no_detiene_el_entrenamiento(tmp_path: Path, error: OSError) -> None:
    console = Console(file=Broken(error))
    log = TrainLog(tmp_path, steps=4, tokens_per_step=8, console=console)
    log.restart(0, StepClock().state_dict(), {})
    for step in (1, 2):
        log.record(row(step), {})
        log.say("sigo")
    assert [cells[0] for cells in table(tmp_path)] == ["step", "1", "2"]


@pytest.mark.parametrize("lost", [".", "informes"])
def test_una_carpeta_borrada_a_medias_se_nombra(tmp_path: Path, lost: str) -> None:
    log, _ = open_log(tmp_path / "run")
    log.record(row(1), {})
    shutil.rmtree(tmp_path / "run" / lost)
    with pytest.raises(EnlaceError, match="ha desaparecido") as stopped:
        log.record(row(2), {})
    assert str((tmp_path / "run" / lost).resolve()) in str(stopped.value)
