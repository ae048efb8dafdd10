"""Estimar para cada perfil que se entrega: ninguno falla, y el que no sirve lo dice."""

from pathlib import Path

import pytest

from enlace.cards import profile_card
from enlace.config.load import resolve
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.recorder import Trace
from tests.preflight.support_preflight import remember_traces

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROFILES = sorted(path.stem for path in (ROOT / "configs/hardware").glob("*.yaml"))
SMALL = [
    "hardware.micro_batch=1",
    "hardware.activation_checkpointing=none",
    "model.n_layer=1",
    "train.tokens_per_step=128",
]


@pytest.fixture(scope="module")
def known() -> dict[str, Trace]:
    return {}


@pytest.mark.parametrize("profile", PROFILES)
def test_cada_perfil_se_deja_estimar(
    profile: str, known: dict[str, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_traces(monkeypatch, known)
    config = resolve("demo", [f"hardware={profile}", *SMALL], ROOT)
    done = estimate(config, profile_card(profile), 1 << 40, advise=False)
    assert (done.fit, done.reasons, done.profile) == ("cabe", (), profile)
    assert (done.time is None) == (profile == "cpu")
    assert done.memory.peak_bytes >= done.memory.live_bytes > 0
    if done.time is not None:
        assert 0 < done.time.model_flops_utilization < 1
