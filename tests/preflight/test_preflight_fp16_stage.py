"""La etapa entera con fp16 de verdad, en CPU: lo que no puede funcionar no llega a entrenar."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enlace.config.views import declared_params, declared_values
from enlace.errors import user_errors
from stages import preflight
from tests.support import make_config

ROOT = Path(__file__).parents[2]
FP16 = {
    "hardware.dtype": "fp16",
    "hardware.threads": 1,
    "hardware.preflight.health_steps": 20,
    "hardware.preflight.steps": 1,
    "model.n_layer": 1,
    "train.tokens_per_step": 128,
}
"""fp16 en CPU es lento: lo mínimo que aún acumula."""


def run_stage(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(FP16 | changes)
    values = declared_values(config, declared_params("preflight", ROOT))

    @contextmanager
    def opened(_: str) -> Iterator[Any]:
        with user_errors():
            yield SimpleNamespace(declared_values=lambda: values)

    monkeypatch.setattr(preflight, "stage", opened)
    preflight.main([])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "cause", "remedy"),
    [
        # v ≈ 100·√32, y al multiplicar por wo otro tanto: unos 320 000.
        ({"model.init_std": 100.0}, "desborda en salida de atención", "baja model.init_std"),
        # La escala se hunde: el entrenador se detiene antes de llegar a donde serviría.
        (
            {"train.fp16_init_scale": 2e12, "train.fp16_min_scale": 1e12},
            "no encontró una escala en 1 paso;",
            "no deja bajar hasta ella: bájala",
        ),
    ],
)
def test_un_fp16_que_no_puede_funcionar_para_la_etapa(
    changes: dict[str, Any],
    cause: str,
    remedy: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_stage(changes, monkeypatch)
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert cause in message
    assert remedy in message
    assert "además" not in message
    report = json.loads((project / "reports/preflight/report.json").read_text("utf-8"))
    assert (report["passed"], len(report["reasons"])) == (False, 1)
    assert not (project / "reports/preflight/verdict.json").exists()
    assert not list((project / ".enlace/preflight").glob("*.json"))


@pytest.mark.slow
def test_un_fp16_sano_pasa_la_etapa(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_stage({}, monkeypatch)
    report = json.loads((project / "reports/preflight/report.json").read_text("utf-8"))
    assert report["passed"] is True
    assert report["measurement"]["health"]["scaling"]["steps"] > 0
    assert (project / "reports/preflight/verdict.json").is_file()
    assert len(list((project / ".enlace/preflight").glob("*.json"))) == 1
