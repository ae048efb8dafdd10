"""El cambio que se aconseja cuando algo no cabe: el menor, y aplicado cabe de verdad."""

from collections.abc import Callable
from typing import Any

import pytest

from enlace.cards import profile_card
from enlace.config.schema import Config
from enlace.preflight.disk import most_steps
from enlace.preflight.estimate.advice import Search
from enlace.preflight.estimate.capacity import CUDA_CONTEXT, GIB, estimate_memory
from enlace.preflight.estimate.estimate import estimate
from enlace.preflight.estimate.recorder import Trace
from enlace.preflight.estimate.remedy import change_text, smallest_change
from tests.preflight.support_preflight import remember_traces
from tests.support import make_config

DISK = 1 << 40
WIDE = {"train.tokens_per_step": 16 * 32, "hardware.micro_batch": 16}
"""Dieciséis secuencias de 32 tokens por paso, de una vez."""
TURING = {
    "hardware.name": "rtx2060",
    "hardware.device": "cuda",
    "hardware.dtype": "fp16",
    "hardware.sdpa_backend": "mem_efficient",
}
COST = {"none": 10, "mlp": 6, "block": 2}
"""Una memoria inventada: 5 fijos y tantos por secuencia según el checkpointing."""


def invented(limit: int) -> Callable[[Config], bool]:
    def fits(config: Config) -> bool:
        hardware = config.hardware
        rows, mode = hardware.micro_batch, hardware.activation_checkpointing
        return 5 + COST[mode] * rows <= limit

    return fits


class _Straight:
    """Una extrapolación inventada: 1 GiB por secuencia, y el doble de rápida la de doble lote."""

    def live(self, _layers: int, rows: int) -> dict[str, int]:
        return {"backward": rows * GIB}

    def step(self, _layers: int, _rows: int, _rates: object, accumulation: int) -> float:
        return float(accumulation)

    def mode(self, _: str) -> "_Straight":
        return self


@pytest.mark.parametrize(("fits_now", "best"), [(True, 4), (False, 2)])
def test_de_lo_que_ya_esta_puesto_manda_lo_estimado_y_no_lo_extrapolado(
    fits_now: bool, best: int
) -> None:
    config = make_config(TURING | WIDE | {"hardware.micro_batch": 4, "hardware.loss_chunk_rows": 8})
    invented: Any = _Straight()
    # Cuatro secuencias pedirían 4,4 GiB con lo que se supone que sobra: extrapolando no caben.
    search = Search(config, invented, invented, 4 * GIB, fits_now=fits_now)
    found = search.best()
    assert found is not None
    assert (found.micro_batch, found.fits) == (best, True)


@pytest.mark.parametrize(
    ("start", "limit", "change"),
    [
        # Bajar el micro-batch lo menos posible, aunque recalcular también bastase.
        (("none", 16), 150, "baja hardware.micro_batch de 16 a 8"),
        (("none", 16), 25, "baja hardware.micro_batch de 16 a 2"),
        (("block", 16), 21, "baja hardware.micro_batch de 16 a 8"),
        # Ni con una secuencia: recalcular lo menos que baste, sin tocar el micro-batch…
        (("none", 1), 11, "pon hardware.activation_checkpointing: mlp (ahora, none)"),
        (("none", 1), 7, "pon hardware.activation_checkpointing: block (ahora, none)"),
        (("none", 4), 14, "pon hardware.activation_checkpointing: block (ahora, none)"),
        # …o las dos cosas.
        (("none", 16), 11, "pon hardware.activation_checkpointing: mlp (ahora, none) y "
                           "baja hardware.micro_batch de 16 a 1"),
        (("mlp", 16), 9, "pon hardware.activation_checkpointing: block (ahora, mlp) y "
                         "baja hardware.micro_batch de 16 a 2"),
        (("none", 16), 6, None),
        (("block", 1), 6, None),
    ],
)  # fmt: skip
def test_el_cambio_es_el_menor_que_basta(
    start: tuple[str, int], limit: int, change: str | None
) -> None:
    mode, rows = start
    config = make_config(
        WIDE | {"hardware.activation_checkpointing": mode, "hardware.micro_batch": rows}
    )
    found = smallest_change(config, invented(limit))
    assert (None if found is None else change_text(config, found)) == change
    assert found is None or invented(limit)(found)


def test_solo_se_aconsejan_micro_batches_que_reparten_el_paso() -> None:
    config = make_config({"train.tokens_per_step": 15 * 32, "hardware.micro_batch": 15})
    found = smallest_change(config, invented(95))
    assert found is not None
    assert found.hardware.micro_batch == 5


@pytest.fixture(scope="module")
def known() -> dict[str, Trace]:
    return {}


@pytest.fixture(autouse=True)
def traced_once(monkeypatch: pytest.MonkeyPatch, known: dict[str, Trace]) -> None:
    remember_traces(monkeypatch, known)


def between(changes: dict[str, Any], other: dict[str, Any]) -> float:
    """Los GiB con los que lo de `changes` no cabe y lo mismo con `other` sí."""
    high, low = (
        estimate_memory(make_config(each), None)[0].peak_bytes
        for each in (changes, changes | other)
    )
    assert low < high
    context = CUDA_CONTEXT if changes.get("hardware.device") == "cuda" else 0
    return ((low + high) / 2 + context) / GIB


PAIR = {"hardware.micro_batch": 2, "train.tokens_per_step": 2 * 512, "model.n_layer": 1}
ONE = {"hardware.micro_batch": 1, "train.tokens_per_step": 512}


@pytest.mark.parametrize(
    ("start", "other", "change"),
    [
        (PAIR, {"hardware.micro_batch": 1}, "baja hardware.micro_batch de 2 a 1"),
        # Con un micro-batch menor que `fewest_rows` no hay de dónde extrapolar.
        pytest.param(
            TURING | PAIR | {"hardware.loss_chunk_rows": 1024},
            {"hardware.micro_batch": 1},
            "baja hardware.micro_batch de 2 a 1",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            # Con dos capas, recalcular una ocupa más de lo que libera la otra.
            ONE | {"model.n_layer": 4},
            {"hardware.activation_checkpointing": "block"},
            "pon hardware.activation_checkpointing: block (ahora, none)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TURING | WIDE | {"train.tokens_per_step": 32 * 512, "hardware.loss_chunk_rows": 4096},
            {"hardware.micro_batch": 8},
            "baja hardware.micro_batch de 16 a 8",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_aplicado_el_cambio_cabe(start: dict[str, Any], other: dict[str, Any], change: str) -> None:
    # Pocos parámetros y secuencias largas: lo que pesa son las activaciones.
    long = {"model.seq_len": 512, "model.n_layer": 2, "hardware.loss_chunk_rows": 256}
    changes: dict[str, Any] = long | {"hardware.memory_margin": 0.0} | start
    changes["hardware.memory_gib"] = between(changes, other)
    card = profile_card("rtx2060") if "hardware.device" in changes else None
    refused = estimate(make_config(changes), card, DISK)
    assert refused.fit == "no cabe"
    assert refused.fix == change
    assert refused.fix in refused.reasons[0]
    accepted = estimate(make_config(changes | other), card, DISK, advise=False)
    assert (accepted.fit, accepted.reasons) == ("cabe", ())


def test_lo_justo_tambien_dice_que_cambiar_y_no_es_un_motivo() -> None:
    changes: dict[str, Any] = PAIR | {"model.seq_len": 512, "hardware.memory_margin": 0.0,
                                      "hardware.loss_chunk_rows": 256}  # fmt: skip
    peak = estimate_memory(make_config(changes), None)[0].peak_bytes
    changes |= {"hardware.memory_gib": 1.02 * peak / GIB, "hardware.memory_margin": 0.1}
    tight = estimate(make_config(changes), None, DISK)
    assert (tight.fit, tight.reasons) == ("justo", ())
    assert tight.fix == "baja hardware.micro_batch de 2 a 1"


@pytest.mark.parametrize("keep_every", [0, 5])
def test_con_los_pasos_aconsejados_cabe_y_con_uno_mas_no(keep_every: int) -> None:
    config = make_config({"train.steps": 1000, "train.keep_every": keep_every})

    def needed(other: Config) -> int:
        milestones = other.train.steps // keep_every if keep_every else 0
        return 100 + 7 * other.train.steps + 50 * milestones

    steps = most_steps(config, 2000, needed)
    spent = [
        needed(config.model_copy(update={"train": config.train.model_copy(update={"steps": n})}))
        for n in (steps, steps + 1)
    ]
    assert spent[0] <= 2000 < spent[1]
    assert most_steps(config, 106, needed) == 0


def test_el_remedio_del_disco_aplicado_cabe() -> None:
    changes = PAIR | {"train.steps": 40_000, "train.save_every": 100, "train.keep_every": 100}
    refused = estimate(make_config(changes), None, 20_000_000, advise=False)
    assert "no hay disco" in refused.reasons[0]
    steps = int(refused.reasons[0].rsplit(" ", 1)[1])
    fewer = estimate(make_config(changes | {"train.steps": steps}), None, 20_000_000, advise=False)
    assert (fewer.reasons, steps > 0) == ((), True)
