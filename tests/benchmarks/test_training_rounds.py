"""El reparto de turnos con contrincantes de mentira, y los procesos de verdad que mueren."""

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import training_pool
from tests.benchmarks.training_bench import check_memory, line_up, write_results
from tests.benchmarks.training_pool import MissingPeerError, PeerFailedError, Worker, environment
from tests.benchmarks.training_rounds import Comparison, compare
from tests.benchmarks.training_session import Session
from tests.benchmarks.training_worker import CONTENDERS, STEP_PEERS, missing
from tests.benchmarks.training_works import DEFAULT_WORKS, STEP_WORKS, WORKS, Setup, Work

WORK = Work("probe", "smoke", (), batch=1, steps=3, warmup=2)


class Fake:
    """Un contrincante que apunta las órdenes y, si se le dice, muere en una de ellas."""

    def __init__(self, name: str, log: list[str], dies_at: int | None = None) -> None:
        self.parameters = 10
        self.closed = False
        self._name, self._log, self._left = name, log, dies_at

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise PeerFailedError("ha fallado (código 9): adiós")
        self._log.append(self._name)
        steps = command.get("steps", 1)
        reply = {"wall": 1.0, "cpu": 1.0, "steps": steps, "peak": 1, "base": 0, "flops": 1}
        return {**reply, "losses": [5.0] * steps, "gemm": {"a": 1.0}, "kernels": {"kernels": 3}}

    def close(self) -> None:
        self.closed = True


def _compare(fakes: dict[str, Fake], rivals: list[str], pairs: int, **more: Any) -> Comparison:
    def start(name: str) -> Fake:
        if name not in fakes:
            raise MissingPeerError(f"no instalado (falta {name})")
        return fakes[name]

    return compare(WORK, "enlace", rivals, pairs, start, **more)


def test_los_turnos_se_alternan_y_en_las_vueltas_impares_empieza_el_rival() -> None:
    log: list[str] = []
    fakes = {name: Fake(name, log) for name in ("enlace", "a", "b")}
    result = _compare(fakes, ["a", "b"], 2)
    warmup = ["enlace", "a", "b"]
    assert log == [*warmup, "enlace", "a", "enlace", "b", "a", "enlace", "b", "enlace"]
    assert {name: len(pairs) for name, pairs in result.pairs.items()} == {"a": 2, "b": 2}
    assert len(result.turns("enlace")) == 4
    assert all(fake.closed for fake in fakes.values())


def test_un_rival_sin_instalar_se_nombra_y_los_demas_siguen() -> None:
    fakes = {name: Fake(name, []) for name in ("enlace", "b")}
    result = _compare(fakes, ["a", "b"], 3)
    assert result.failures == {"a": "no instalado (falta a)"}
    assert len(result.pairs["b"]) == 3
    assert "a" not in result.pairs


def test_un_rival_que_muere_a_mitad_conserva_sus_parejas_y_los_demas_siguen() -> None:
    log: list[str] = []
    fakes = {"enlace": Fake("enlace", log), "a": Fake("a", log, dies_at=2), "b": Fake("b", log)}
    result = _compare(fakes, ["a", "b"], 4)
    assert result.failures == {"a": "ha fallado (código 9): adiós"}
    assert {name: len(pairs) for name, pairs in result.pairs.items()} == {"a": 1, "b": 4}
    assert fakes["a"].closed


def test_si_muere_enlace_no_hay_mas_parejas_y_se_dice() -> None:
    fakes = {"enlace": Fake("enlace", [], dies_at=2), "a": Fake("a", [])}
    result = _compare(fakes, ["a"], 5)
    assert list(result.failures) == ["enlace"]
    assert len(result.pairs["a"]) == 1


def test_la_maquina_se_mide_en_cada_vuelta_y_su_muerte_no_para_nada() -> None:
    fakes = {name: Fake(name, []) for name in ("enlace", "a")}
    fakes["m"] = Fake("m", [], dies_at=2)
    result = _compare(fakes, ["a"], 3, machine="m", profile=True)
    assert len(result.machine) == 1
    assert len(result.pairs["a"]) == 3
    assert list(result.kernels) == ["enlace", "a"]


def _worker(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> Worker:
    """Un `Worker` cuyo proceso ejecuta `code` en vez de un contrincante."""
    command = [sys.executable, "-c", code]
    monkeypatch.setattr(training_pool, "worker_command", lambda *_: command)
    return Worker("prueba", Setup(WORKS["probe"], "cpu", "cpu", 1, str(folder)))


def test_el_proceso_que_muere_dice_su_ultima_linea_y_su_codigo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = (
        f"print('{json.dumps({'ready': True, 'parameters': 7})}', flush=True); input(); exit('pum')"
    )
    worker = _worker(monkeypatch, tmp_path, code)
    assert worker.parameters == 7
    with pytest.raises(PeerFailedError, match=r"código 1\): pum"):
        worker.ask({"do": "run", "steps": 1})
    worker.close()


def test_el_proceso_al_que_le_falta_una_biblioteca_lo_dice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = 'print(\'{"missing": ["litgpt"]}\', flush=True)'
    with pytest.raises(MissingPeerError, match=r"no instalado \(falta litgpt\)"):
        _worker(monkeypatch, tmp_path, code)


def test_falta_lo_que_no_se_puede_importar() -> None:
    assert missing(["json", "esto_no_existe"]) == ["esto_no_existe"]


def test_una_sesion_contesta_a_cada_turno_y_acaba_con_la_entrada() -> None:
    commands = io.StringIO('{"do": "run", "steps": 2}\n{"do": "run", "steps": 1}\n')
    replies = io.StringIO()
    session = Session(commands, replies, "cpu")
    session.mark_base()
    session.ready(12)
    session.extra["cosa"] = 1
    for loss in (4.0, 3.0):
        session.step(loss)
    with pytest.raises(SystemExit) as stopped:
        session.step(2.0)
    assert stopped.value.code == 0
    ready, first, second = map(json.loads, replies.getvalue().splitlines())
    assert ready == {"ready": True, "parameters": 12}
    assert (first["losses"], second["losses"]) == ([4.0, 3.0], [2.0])
    assert first["peak"] > 0
    assert first["base"] > 0
    assert first["cosa"] == 1


def test_el_entorno_es_el_mismo_para_todos() -> None:
    values = environment(2)
    assert values["OMP_WAIT_POLICY"] == "passive"
    assert values["OMP_NUM_THREADS"] == values["MKL_NUM_THREADS"] == "2"
    assert values["MALLOC_MMAP_THRESHOLD_"] == values["MALLOC_TRIM_THRESHOLD_"]
    own = {name: value for name, value in values.items() if not name.startswith("MALLOC_")}
    assert environment(2, "system") == own


def test_cada_trabajo_tiene_a_los_suyos_y_todos_existen() -> None:
    for name in DEFAULT_WORKS:
        ours, rivals, machine = line_up(WORKS[name], None)
        assert {ours, *rivals, *([machine] if machine else [])} <= set(CONTENDERS)
    assert line_up(WORKS["small"], ["litgpt"])[1] == ["litgpt"]
    assert line_up(WORKS["small"], None)[1] == STEP_PEERS


def test_unos_logits_que_no_caben_se_dejan_sin_medir() -> None:
    huge = Work("loss-16384", "small", (("vocab_size", 1 << 40),), batch=1, steps=1)
    with pytest.raises(MissingPeerError, match="no medido: necesita"):
        check_memory(huge, "loss-plain", "cpu")
    check_memory(huge, "loss-enlace", "cpu")


def test_los_ajustes_viajan_al_proceso_sin_cambiar() -> None:
    setup = Setup(WORKS["small"], "cpu", "cpu", 2, "carpeta")
    assert Setup.from_json(json.loads(json.dumps(setup.to_json()))) == setup


def test_la_configuracion_de_enlace_es_la_del_trabajo() -> None:
    for work in STEP_WORKS:
        config = Setup(work, "cpu", "cpu", 2, "").config()
        assert config.accumulation == 1
        assert config.train.tokens_per_step == work.tokens
        assert config.model.z_loss_weight > 0
        assert config.train.optimizer == "adamw"


def test_los_resultados_se_escriben_enteros(tmp_path: Path) -> None:
    fakes = {name: Fake(name, []) for name in ("enlace", "transformers")}
    result = _compare(fakes, ["transformers"], 2)
    write_results(tmp_path / "reports", {"fecha": "hoy"}, {"small": result})
    values = json.loads((tmp_path / "reports/bench.json").read_text("utf-8"))
    assert len(values["works"]["small"]["pairs"]["transformers"]) == 2
    assert {bar["holds"] for bar in values["bars"]} == {False}
    assert (tmp_path / "reports/bench.md").read_text("utf-8").startswith("# ENLACE")
    assert (tmp_path / "reports/bench.svg").read_text("utf-8").startswith("<?xml")
