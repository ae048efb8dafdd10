"""La puerta que pasa `pretrain`: antes que la tarjeta, y en otro proceso."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stages import pretrain
from tests.support import make_config


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sustituye lo que toca la máquina por anotaciones, en el orden en que ocurren."""
    seen: list[str] = []

    @contextmanager
    def fake_stage(_: str) -> Iterator[Any]:
        yield SimpleNamespace(whole=make_config)

    @contextmanager
    def fake_lock(device: str) -> Iterator[None]:
        seen.append(f"cierra {device}")
        yield
        seen.append(f"abre {device}")

    monkeypatch.setattr(pretrain, "stage", fake_stage)
    monkeypatch.setattr(pretrain, "inputs_guard", lambda _: None)
    monkeypatch.setattr(pretrain, "device_lock", fake_lock)
    monkeypatch.setattr(pretrain, "delegate", lambda command: seen.append(" ".join(command[1:])))
    monkeypatch.setattr(pretrain, "_deliver", lambda *_: seen.append("entrena"))
    return seen


def test_la_puerta_va_antes_de_cerrar_la_tarjeta(events: list[str]) -> None:
    pretrain.main()
    assert events == ["-m stages.preflight --require", "cierra cpu", "entrena", "abre cpu"]


def test_si_la_puerta_no_abre_no_se_toca_nada(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Sequence[str]) -> None:
        raise SystemExit(2)

    monkeypatch.setattr(pretrain, "delegate", refuse)
    with pytest.raises(SystemExit) as caught:
        pretrain.main()
    assert caught.value.code == 2
    assert events == []
