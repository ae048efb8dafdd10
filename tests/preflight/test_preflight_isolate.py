import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from enlace.backends import describe_device
from enlace.config.schema import Config
from enlace.errors import HardwareError
from enlace.preflight import child
from enlace.preflight.isolate import describe_isolated, measure_isolated
from enlace.preflight.measurement import Failure, Measurement
from enlace.preflight.verdict import judge
from tests.preflight.support_preflight import made_up
from tests.support import make_config

CONFIG = make_config()
ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, code: str, config: Config = CONFIG) -> Measurement | Failure:
    outcome = measure_isolated(config, tmp_path, [sys.executable, "-c", code])
    assert list(tmp_path.iterdir()) == []
    return outcome


@pytest.mark.parametrize(
    ("code", "kind", "detail"),
    [
        ("import os; os.abort()", "crashed", "SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "crashed", "SIGSEGV"),
        ("import sys; sys.exit(7)", "crashed", "código de salida 7"),
        ("import sys; sys.exit(0)", "crashed", "código de salida 0"),
        ("raise ValueError('la causa')", "crashed", "código de salida 1: ValueError: la causa"),
        (
            "import sys; print('x\\nenlace: la causa', file=sys.stderr); sys.exit(1)",
            "refused",
            "la causa",
        ),
        (
            "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('{')",
            "crashed",
            "escribió un resultado ilegible",
        ),
    ],
)
def test_toda_muerte_de_la_medida_es_un_veredicto_en_contra(
    tmp_path: Path, code: str, kind: str, detail: str
) -> None:
    outcome = run(tmp_path, code)
    assert outcome == Failure.model_validate({"kind": kind, "detail": detail})
    assert not judge(CONFIG, outcome).passed


def test_una_medida_escrita_no_vale_si_el_proceso_muere_despues(tmp_path: Path) -> None:
    written = made_up().model_dump_json()
    code = (
        "import os, sys, pathlib;"
        f"pathlib.Path(sys.argv[1]).write_text({written!r}, encoding='utf-8');"
    )
    assert run(tmp_path, code) == made_up()
    assert isinstance(run(tmp_path, code + "os.abort()"), Failure)


def test_se_borran_las_carpetas_de_procesos_muertos_y_no_las_de_los_vivos(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    orphan, alive = tmp_path / f"preflight-{dead.pid}-x", tmp_path / f"preflight-{os.getpid()}-x"
    stamp = tmp_path / "maquina-0123456789abcdef.json"
    for folder in (orphan, alive):
        folder.mkdir()
        (folder / "model.safetensors").touch()
    stamp.touch()
    measure_isolated(CONFIG, tmp_path, [sys.executable, "-c", ""])
    assert sorted(tmp_path.iterdir()) == sorted([alive, stamp])


def test_el_hijo_recibe_la_configuracion_entera(tmp_path: Path) -> None:
    config = make_config({"train.warmup": 0.25, "data.evaluation.prompts": ["¿Qué tal, «ñ»?"]})
    code = (
        "import sys, pathlib; from enlace.config.schema import Config;"
        "from enlace.preflight.measurement import Failure;"
        "config = Config.model_validate_json(sys.stdin.read());"
        "failure = Failure(kind='refused', detail=config.fingerprint());"
        "pathlib.Path(sys.argv[1]).write_text(failure.model_dump_json())"
    )
    assert run(tmp_path, code, config) == Failure(kind="refused", detail=config.fingerprint())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate…"), "memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "memory"),
        (HardwareError("bf16 no es nativo"), "refused"),
    ],
)
def test_lo_que_se_puede_explicar_se_explica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str
) -> None:
    def fail(*_: object) -> Measurement:
        raise error

    monkeypatch.setattr(child, "measure", fail)
    outcome = child.measured(CONFIG, tmp_path, None, probe=True)
    assert isinstance(outcome, Failure)
    assert outcome.kind == kind


def test_un_error_de_programacion_no_se_disfraza_de_falta_de_memoria(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Measurement:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(child, "measure", fail)
    with pytest.raises(RuntimeError, match="mat1"):
        child.measured(CONFIG, tmp_path, None, probe=True)


@pytest.mark.slow
def test_sin_sitio_ni_para_el_resultado_la_medida_dice_por_que(tmp_path: Path) -> None:
    code = (
        "import errno, os, sys; from enlace.preflight import child;"
        "full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'la carpeta');"
        "sys.argv.insert(0, 'child'); del sys.argv[1];"
        "child.measured = lambda *_: (_ for _ in ()).throw(full); child.main()"
    )
    outcome = run(tmp_path, code)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "refused"
    assert outcome.detail.startswith("la carpeta: no queda sitio en el disco; libera espacio")


@pytest.mark.slow
def test_la_memoria_agotada_de_verdad_es_un_no_cabe(tmp_path: Path) -> None:
    # Un modelo de unos 6 GiB en un proceso que solo puede pedir 3.
    config = make_config(
        {"model.n_layer": 1, "model.d_model": 16384, "model.vocab_size": 256, "model.n_head": 128}
    )
    code = (
        "import resource, runpy, sys;"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
        "sys.argv.insert(0, 'child'); del sys.argv[1];"
        "runpy.run_module('enlace.preflight.child', run_name='__main__')"
    )
    outcome = run(tmp_path, code, config)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "memory"
    assert judge(config, outcome).fit == "no cabe"


@pytest.mark.slow
def test_el_proceso_de_verdad_mide_y_no_deja_nada(tmp_path: Path) -> None:
    outcome = measure_isolated(CONFIG, tmp_path)
    assert isinstance(outcome, Measurement)
    assert outcome.memory.peak_bytes is not None
    assert outcome.memory.peak_bytes > 4 * outcome.parameters
    assert judge(CONFIG, outcome).passed
    assert list(tmp_path.iterdir()) == []


def test_el_hijo_recibe_los_shards_y_si_hay_que_sondear(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from enlace.preflight.measurement import Failure;"
        "failure = Failure(kind='refused', detail='|'.join(sys.argv[3:]));"
        "pathlib.Path(sys.argv[1]).write_text(failure.model_dump_json())"
    )
    command = [sys.executable, "-c", code]
    launcher = f"--parent={os.getpid()}"
    plain = measure_isolated(CONFIG, tmp_path, command)
    assert plain == Failure(kind="refused", detail=f"|{launcher}")
    both = measure_isolated(CONFIG, tmp_path, command, shards=Path("data/shards"), probe=False)
    assert both == Failure(kind="refused", detail=f"data/shards|{launcher}|--no-probes")


def test_el_dispositivo_se_describe_en_otro_proceso() -> None:
    code = "import sys; print('Tarjeta', *sys.argv[1:])"
    assert describe_isolated("cuda", [sys.executable, "-c", code]) == "Tarjeta --describe cuda"
    broken = [sys.executable, "-c", "import sys; sys.exit('no hay tarjeta')"]
    with pytest.raises(HardwareError, match=r"^no hay tarjeta$"):
        describe_isolated("cuda", broken)
    with pytest.raises(HardwareError, match=r"qué tarjeta hay \(código de salida 7\)"):
        describe_isolated("cuda", [sys.executable, "-c", "raise SystemExit(7)"])


def test_el_hijo_dice_el_nombre_o_el_error_de_siempre(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child.answer("cpu")
    assert capsys.readouterr().out.strip() == describe_device("cpu").name
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"hardware\.device=cuda necesita una GPU"):
        child.answer("cuda")


@pytest.mark.slow
def test_el_proceso_de_verdad_describe_la_maquina() -> None:
    assert describe_isolated("cpu") == describe_device("cpu").name


def test_quien_espera_la_medida_no_carga_torch() -> None:
    code = "import sys, stages.preflight; print({'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "set()\n"
