"""El avance: líneas sueltas fuera de una terminal, barra en ella, y velocidad y tiempo restante."""

import io

from rich.console import Console

from enlace.data.throughput import Throughput


def _console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=200)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def test_sin_terminal_habla_de_tarde_en_tarde_y_al_acabar() -> None:
    console, now = _console(), [0.0]
    with Throughput("train", 400_000_000, console, lambda: now[0]) as progress:
        for _ in range(20):
            now[0] += 1
            progress.advance(20_000_000)
    assert _text(console).splitlines() == [
        "train: 200,0 de 400,0 MB · 20,0 MB/s · quedan 10 s",
        "train: 400,0 de 400,0 MB · 20,0 MB/s",
        "train: 400,0 MB en 20,0 s (20,0 MB/s)",
    ]


def test_lo_pequeno_se_dice_en_su_unidad() -> None:
    console, now = _console(), [0.0]
    with Throughput("val", 12_300, console, lambda: now[0]) as progress:
        now[0] = 0.002
        progress.advance(12_300)
    assert _text(console) == "val: 12,3 kB en 2,00 ms (6,2 MB/s)\n"


def test_en_una_terminal_hay_barra_con_velocidad_y_tiempo() -> None:
    console, now = _console(terminal=True), [0.0]
    with Throughput("val", 100_000_000, console, lambda: now[0]) as progress:
        now[0] = 2.0
        progress.advance(50_000_000)
        assert (
            progress.describe().replace("\N{NO-BREAK SPACE}", " ")
            == "50,0 de 100,0 MB · 25,0 MB/s · quedan 2 s"
        )
    assert "25,0 MB/s" in _text(console)


def test_si_falla_no_dice_que_ha_acabado() -> None:
    console = _console()
    progress = Throughput("train", 10, console).__enter__()
    progress.advance(5)
    progress.__exit__(ValueError, ValueError("roto"), None)
    assert _text(console) == ""
