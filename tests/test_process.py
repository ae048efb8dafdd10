"""Cerrojos, señales y muerte con el padre, con procesos de verdad."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enlace.errors import LockError, UnfinishedError
from enlace.process import (
    LAUNCHER,
    StopSignal,
    device_lock,
    die_with_parent,
    exclusive_lock,
    stopping,
)

HOLDER = """
import sys, time
from pathlib import Path
from enlace.process import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("dentro", flush=True)
    time.sleep(60)
"""

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""

CHILD = """
import time
from enlace.process import die_with_parent
die_with_parent()
print("listo", flush=True)
time.sleep(60)
"""


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE, text=True)


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_alive(pid: int) -> bool:
    """Vivo de verdad: un zombi que nadie ha recogido ya no entrena."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_un_segundo_proceso_se_entera_de_quien_tiene_el_cerrojo(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with start(HOLDER, str(lock)) as holder:
        assert read_line(holder) == "dentro"
        with (
            pytest.raises(LockError, match=f"{lock}.*proceso {holder.pid} de"),
            exclusive_lock(lock),
        ):
            pass
        holder.kill()
    with exclusive_lock(lock):
        assert str(os.getpid()) in lock.read_text(encoding="utf-8")


def test_un_cerrojo_que_nadie_sujeta_se_toma(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    lock.write_text('{"pid": 1, "host": "otra", "started": "ayer", "sobra": "texto viejo"}')
    with exclusive_lock(lock):
        assert "texto viejo" not in lock.read_text(encoding="utf-8")


def test_el_cerrojo_se_suelta_al_salir_y_tambien_con_un_error(tmp_path: Path) -> None:
    lock = tmp_path / "sub" / "run.lock"
    with pytest.raises(ValueError, match="fallo"), exclusive_lock(lock):
        raise ValueError("fallo")
    with exclusive_lock(lock):
        pass


def test_un_cerrojo_sin_firma_tambien_da_un_mensaje(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with exclusive_lock(lock):
        lock.write_text("")
        with pytest.raises(LockError, match="aún no ha dicho"), exclusive_lock(lock):
            pass


def test_la_gpu_es_de_un_solo_proceso_y_la_cpu_de_todos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enlace.process.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with device_lock("cuda"):
        with pytest.raises(LockError, match="gpu-0"), device_lock("cuda"):
            pass
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        with pytest.raises(LockError, match="gpu-0"), device_lock("cuda"):
            pass
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
        with device_lock("cuda"), device_lock("cpu"), device_lock("cpu"):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="prctl es de Linux")
def test_el_hijo_muere_cuando_matan_al_padre() -> None:
    with start(PARENT, CHILD) as parent:
        child = int(read_line(parent))
        assert read_line(parent) == "listo"
        assert is_alive(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(child)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl es de Linux")
def test_un_padre_muerto_antes_de_pedirlo_tambien_cuenta(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([1234, 1])
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("enlace.process.os.getppid", lambda: next(parents))
    monkeypatch.setattr("enlace.process.os.kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr("enlace.process.ctypes.CDLL", lambda *_, **__: _Libc())
    die_with_parent()
    assert sent == [(os.getpid(), signal.SIGTERM)]


class _Libc:
    def prctl(self, *_: int) -> int:
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_la_primera_senal_solo_pide_parar(number: signal.Signals) -> None:
    with StopSignal() as stop:
        assert stop.requested is None
        signal.raise_signal(number)
        assert stop.requested == number


def test_el_segundo_ctrl_c_sale_en_el_acto() -> None:
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.requested == signal.SIGINT


def test_sighup_seguido_de_sigterm_no_es_un_segundo_aviso() -> None:
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.requested == signal.SIGHUP


def test_al_salir_vuelven_los_manejadores_de_antes() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopSignal():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_nohup_se_respeta() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_una_senal_de_parada_deshace_lo_que_este_a_medias(number: signal.Signals) -> None:
    cleaned = []

    def interrupted() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), number)  # la segunda no debe cortar la limpieza
            cleaned.append(True)

    before = signal.getsignal(number)
    with pytest.raises(UnfinishedError, match=f"señal {number}") as stopped, stopping():
        interrupted()
    assert cleaned == [True]
    assert stopped.value.exit_code == 128 + number
    assert signal.getsignal(number) == before


def test_quien_arranca_despues_de_morir_su_padre_no_sigue() -> None:
    code = "from enlace.process import die_with_parent; die_with_parent(1 << 30); print('sigue')"
    with start(code) as child:
        assert read_line(child) == ""
    assert child.returncode == -signal.SIGTERM


def test_quien_lo_lanza_se_sabe_aunque_muera_mientras_arranca(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Importar torch tarda segundos; hasta entonces nadie ha pedido morir con el padre."""
    monkeypatch.setenv(LAUNCHER, str(1 << 30))
    with start(
        "from enlace.process import die_with_parent; die_with_parent(); print('sigue')"
    ) as it:
        assert read_line(it) == ""
    assert it.returncode == -signal.SIGTERM


def test_los_hijos_de_una_etapa_no_heredan_quien_la_lanzo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER, str(os.getpid()))
    code = (
        "import os; from enlace.process import LAUNCHER, die_with_parent; die_with_parent()\n"
        "print(os.environ.get(LAUNCHER))"
    )
    with start(code) as child:
        assert read_line(child) == "None"
    assert child.returncode == 0


def _interrupted(times: int) -> None:
    """Como una extensión en C que convierte lo que sea en su propio error."""
    with StopSignal():
        try:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ValueError("no sé qué es esto") from error
        raise ValueError("un fallo")


def test_un_segundo_ctrl_c_que_una_extension_convierte_en_otro_error_sigue_siendolo() -> None:
    with pytest.raises(KeyboardInterrupt):
        _interrupted(2)
    with pytest.raises(ValueError, match="un fallo"):
        _interrupted(1)
