"""Guardar detrás del bucle: lo copiado es el instante, y un disco que falla no para el trabajo."""

import errno
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from enlace.errors import CheckpointError, UnfinishedError
from enlace.progress import TrainLog
from enlace.train import writer as writer_module
from enlace.train.checkpoint import (
    CHECKPOINTS,
    MODEL,
    OPTIMIZER,
    newest_complete,
    verify_checkpoint,
    write_checkpoint,
)
from enlace.train.snapshot import Snapshot
from enlace.train.writer import CheckpointWriter
from tests.support import make_config
from tests.train.checkpoints import CPU, small_state, small_tensors, steps_in
from tests.train.runs import SHORT, deterministic_rows, run_training
from tests.train.streams import PeriodicStream


class Bench:
    """Un `CheckpointWriter` con todo lo que lo rodea a la vista."""

    def __init__(self, run_dir: Path, **changes: Any) -> None:
        self.said: list[str] = []
        self.slept: list[float] = []
        self.before_writing: Callable[[], None] = lambda: None
        config = make_config({f"train.{key}": value for key, value in changes.items()})
        self.writer = CheckpointWriter(
            run_dir,
            config,
            CPU,
            say=self.said.append,
            sync=lambda: self.before_writing(),
            sleep=self.slept.append,
        )

    def save(self, step: int, **changes: Any) -> None:
        tensors = small_tensors(step)
        self.writer.save(small_state(step, **changes), tensors, tensors)


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> list[int]:
    """Hace fallar los intentos (contados desde 1) que diga `fails`; devuelve los pasos vistos."""
    attempts: list[int] = []

    def write(run_dir: Path, snapshot: Snapshot) -> Path:
        attempts.append(snapshot.state["step"])
        if fails(len(attempts)):
            raise OSError(errno.ENOSPC, "No queda espacio en el dispositivo")
        return write_checkpoint(run_dir, snapshot)

    monkeypatch.setattr(writer_module, "write_checkpoint", write)
    return attempts


def test_guardar_vuelve_antes_de_escribir_y_guarda_el_instante(tmp_path: Path) -> None:
    bench, may_write = Bench(tmp_path), threading.Event()
    bench.before_writing = lambda: assert_set(may_write)
    tensors, state = small_tensors(1), small_state(1, segments=[{"a": 1}])
    bench.writer.save(state, tensors, tensors)
    # El bucle ya ha vuelto y cambia todo lo que puede cambiar.
    assert not (tmp_path / CHECKPOINTS).exists()
    for tensor in tensors.values():
        tensor.zero_()
    state["segments"][0]["a"] = 2
    may_write.set()
    bench.writer.wait()
    assert bench.writer.newest is not None
    found = verify_checkpoint(bench.writer.newest)
    assert found["segments"] == [{"a": 1}]
    for name in (MODEL, OPTIMIZER):
        assert torch.equal(load_file(bench.writer.newest / name)["w"], small_tensors(1)["w"])


def assert_set(event: threading.Event) -> None:
    assert event.wait(timeout=60)


def test_hay_un_guardado_en_marcha_como_mucho(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "WAIT_WORTH_SAYING", 0.05)
    bench, may_write = Bench(tmp_path, keep_last=3), threading.Event()
    bench.before_writing = lambda: assert_set(may_write)
    bench.save(1)
    threading.Timer(0.2, may_write.set).start()
    bench.save(2)
    # Al volver, el primero está entero: el segundo ha reutilizado sus búferes.
    first = tmp_path / CHECKPOINTS / "step_00000001"
    assert torch.equal(load_file(first / MODEL)["w"], small_tensors(1)["w"])
    assert "ha esperado" in bench.said[0]
    assert bench.writer.stall > 0.1
    bench.writer.wait()
    assert steps_in(tmp_path) == [1, 2]


def test_en_primer_plano_vuelve_con_todo_en_el_disco(tmp_path: Path) -> None:
    bench = Bench(tmp_path, save_background=False)
    bench.save(1)
    assert steps_in(tmp_path) == [1]


def test_el_mismo_paso_no_se_guarda_dos_veces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, bench = failing(monkeypatch, lambda _: False), Bench(tmp_path)
    bench.save(1)
    bench.save(1)
    bench.writer.wait()
    bench.writer.opened(tmp_path, 7)
    bench.save(7)
    assert attempts == [1]


def test_un_fallo_se_repite_con_esperas_que_se_doblan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda attempt: attempt <= 3)
    bench = Bench(tmp_path, save_retries=3, save_retry_seconds=5.0)
    bench.save(1)
    bench.writer.wait()
    assert bench.slept == [5.0, 10.0, 20.0]
    assert steps_in(tmp_path) == [1]
    assert [line.split(":")[0] for line in bench.said[:3]] == ["aviso"] * 3
    assert "no queda sitio en el disco" in bench.said[0]
    assert "step_00000001" in bench.said[0]
    assert "ya está guardado" in bench.said[3]


def test_un_guardado_sin_remedio_no_para_hasta_que_fallan_varios_seguidos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sin reintentos, fallan los intentos 2, 4 y 5: el 3 empieza la cuenta de nuevo.
    failing(monkeypatch, lambda attempt: attempt in (2, 4, 5))
    bench = Bench(tmp_path, save_retries=0, max_failed_saves=2, keep_last=9)
    for step in (1, 2, 3, 4):
        bench.save(step)
        bench.writer._join()
        bench.writer.check()
    assert steps_in(tmp_path) == [1, 3]
    bench.save(5)
    bench.writer._join()
    with pytest.raises(CheckpointError, match=r"fallado 2 guardados.*step_00000003 sigue intacto"):
        bench.writer.check()
    with pytest.raises(CheckpointError, match="2 guardados seguidos"):
        bench.save(6)
    assert steps_in(tmp_path) == [1, 3]


def test_no_se_poda_si_el_nuevo_no_se_pudo_guardar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda attempt: attempt > 2)
    bench = Bench(tmp_path, keep_last=1, save_retries=0)
    for step in (1, 2, 3):
        bench.save(step)
    with pytest.raises(CheckpointError, match="no queda sitio en el disco"):
        bench.writer.wait()
    assert steps_in(tmp_path) == [2]


def test_si_no_se_puede_podar_se_dice_y_se_sigue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Error de entrada/salida")

    monkeypatch.setattr(writer_module, "prune", broken)
    bench = Bench(tmp_path)
    bench.save(1)
    bench.writer.wait()
    assert "no se han podido borrar" in bench.said[0]


def test_un_fallo_del_programa_en_el_hilo_no_se_pierde(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.before_writing = lambda: (_ for _ in ()).throw(ZeroDivisionError("fallo"))
    bench.save(1)
    with pytest.raises(ZeroDivisionError, match="fallo"):
        bench.writer.wait()


@pytest.mark.parametrize("error", [None, ValueError, UnfinishedError])
def test_al_salir_se_espera_a_lo_que_este_en_marcha(tmp_path: Path, error: type | None) -> None:
    bench, may_write = Bench(tmp_path), threading.Event()
    bench.before_writing = lambda: assert_set(may_write)

    def leave() -> None:
        with bench.writer:
            bench.save(1)
            threading.Timer(0.05, may_write.set).start()
            if error is not None:
                raise error("x", 1)

    if error is None:
        leave()
    else:
        with pytest.raises(error):
            leave()
    assert steps_in(tmp_path) == [1]


def test_con_otro_ctrl_c_no_se_espera(tmp_path: Path) -> None:
    bench, may_write = Bench(tmp_path), threading.Event()
    bench.before_writing = lambda: assert_set(may_write)
    with pytest.raises(KeyboardInterrupt), bench.writer:  # noqa: PT012
        bench.save(1)
        raise KeyboardInterrupt
    assert bench.writer.newest is None
    may_write.set()
    bench.writer.wait()


def test_el_entrenamiento_sigue_aunque_falle_un_guardado(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Dos intentos por guardado: falla entero el del paso 2 y salen los demás.
    attempts = failing(monkeypatch, lambda attempt: attempt <= 2)
    output = io.StringIO()
    result = run_training(tmp_path, make_config(SHORT), output=output)
    assert attempts == [2, 2, 3, 6]
    assert steps_in(tmp_path) == [3, 6]
    assert result.checkpoint == tmp_path / CHECKPOINTS / "step_00000006"
    assert "no se ha podido guardar" in output.getvalue()
    assert len(deterministic_rows(tmp_path)) == 1 + 6


def test_si_falla_el_ultimo_guardado_el_entrenamiento_no_acaba_bien(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda attempt: attempt > 2)
    with pytest.raises(CheckpointError, match=r"step_00000006.*step_00000003 sigue intacto"):
        run_training(tmp_path, make_config(SHORT))
    found = newest_complete(tmp_path)
    assert found is not None
    assert found.state["step"] == 3


def test_parar_sin_poder_guardar_no_dice_que_esta_guardado(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda _: True)
    config = make_config(SHORT)
    with pytest.raises(CheckpointError, match="aún no hay ningún checkpoint"):
        run_training(tmp_path, config, stream=PeriodicStream(config, stop_at=1))


def test_demasiados_fallos_paran_el_entrenamiento(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda _: True)
    config = make_config(SHORT | {"train.save_every": 1, "train.save_background": False})
    with pytest.raises(CheckpointError, match=r"2 guardados seguidos \(train\.max_failed_saves"):
        run_training(tmp_path, config)
    assert len(deterministic_rows(tmp_path)) == 1 + 2


def test_lo_guardado_detras_es_lo_mismo_que_en_primer_plano(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Con un disco lento, el bucle da pasos mientras se escribe cada checkpoint.
    taken: list[int] = []
    sync = TrainLog.sync

    def slow_sync(log: TrainLog) -> None:
        threading.Event().wait(0.05)
        sync(log)

    monkeypatch.setattr(TrainLog, "sync", slow_sync)
    changes = SHORT | {"train.save_every": 2, "train.keep_last": 9, "model.dropout": 0.2}
    for name, background in (("detrás", True), ("delante", False)):
        run_training(tmp_path / name, make_config(changes | {"train.save_background": background}))
    for step in steps_in(tmp_path / "delante"):
        taken.append(step)
        behind, front = (
            tmp_path / name / CHECKPOINTS / f"step_{step:08d}" for name in ("detrás", "delante")
        )
        for file in (MODEL, OPTIMIZER):
            assert (behind / file).read_bytes() == (front / file).read_bytes()
    assert taken == [2, 4, 6]
