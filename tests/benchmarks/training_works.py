"""Los trabajos que se comparan y todo lo que un contrincante necesita para montar el suyo.

Aquí no se importa torch: lo leen tanto el proceso que reparte los turnos como los que trabajan.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from enlace.config.schema import Config
    from enlace.data.streams import Batch

ROOT = Path(__file__).parents[2]
DISTINCT_BATCHES = 8
"""Lotes preparados antes de medir; se repiten en orden, y son los mismos para todos."""


@dataclass(frozen=True)
class Work:
    """Un trabajo: la capa de `configs/model/` de la que parte, lo que cambia y el lote.

    `steps` son los pasos de un turno; `warmup`, los que cada uno da antes de empezar a medir.
    """

    name: str
    layer: str
    model: tuple[tuple[str, Any], ...]
    batch: int
    steps: int
    warmup: int = 2

    def model_values(self) -> dict[str, Any]:
        """Las claves de la sección `model`, completas."""
        return {**_layer("model", self.layer), **dict(self.model)}

    @property
    def seq_len(self) -> int:
        """Tokens de cada secuencia."""
        return int(self.model_values()["seq_len"])

    @property
    def tokens(self) -> int:
        """Tokens de un paso."""
        return self.batch * self.seq_len


_SMALL = (("vocab_size", 32768), ("n_layer", 6), ("n_head", 8), ("n_kv_head", 2), ("d_model", 256))
_HEAD = (*_SMALL, ("seq_len", 512))

STEP_WORKS = (
    Work("tiny-50m", "tiny-50m", (("seq_len", 512),), batch=2, steps=2),
    Work("small", "small", _HEAD, batch=4, steps=2),
    Work("smoke", "smoke", (("seq_len", 128),), batch=16, steps=10, warmup=4),
)
LOSS_WORKS = (
    Work("loss-2048", "small", _HEAD, batch=4, steps=2, warmup=1),
    Work("loss-16384", "small", _HEAD, batch=32, steps=1, warmup=1),
)
STREAM_WORK = Work("stream", "small", (*_SMALL, ("seq_len", 2048)), batch=8, steps=400, warmup=50)
PROBE_WORK = Work("probe", "smoke", (("n_layer", 2), ("d_model", 32), ("seq_len", 32)), 2, 2)
"""Minúsculo: no mide nada, sirve para probar el banco de medida."""
WORKS = {work.name: work for work in (*STEP_WORKS, *LOSS_WORKS, STREAM_WORK, PROBE_WORK)}
DEFAULT_WORKS = [name for name in WORKS if name != PROBE_WORK.name]

LR = 1e-4
"""Fija y pequeña: no se compara lo que aprenden, y ninguno debe divergir."""
_STEPS = 1_000_000


@dataclass(frozen=True)
class Setup:
    """Lo que recibe un contrincante: el trabajo, el dispositivo y los hilos.

    `profile` es la capa de `configs/hardware/` que usa ENLACE; de ella sale también la precisión de
    los demás. `folder` es una carpeta vacía para lo que alguno necesite escribir. Con `malloc` en
    `keep` nadie devuelve memoria al sistema; con `system` cada uno va como viene, y ENLACE, con lo
    que diga su perfil.
    """

    work: Work
    device: str
    profile: str
    threads: int
    folder: str
    malloc: str = "keep"

    def config(self) -> "Config":
        """La configuración de ENLACE: las capas de siempre con el modelo y el lote del trabajo."""
        from enlace.config.load import resolve
        from enlace.config.schema import BYTE_VOCABULARY, Config

        model = self.work.model_values()
        run = "smoke" if model["vocab_size"] == BYTE_VOCABULARY else "small"
        values = resolve(run, [], ROOT).model_dump()
        values["model"] = model
        values["hardware"] = {
            **_layer("hardware", self.profile),
            "micro_batch": self.work.batch,
            "threads": self.threads,
        }
        values["train"] |= {
            "tokens_per_step": self.work.tokens,
            "steps": _STEPS,
            "warmup": 0,
            "lr": LR,
            "optimizer": "adamw",
        }
        # Aquí nadie escribe muestras, y las del run no caben en las secuencias más cortas.
        values["data"]["evaluation"]["max_new_tokens"] = 1
        return Config.model_validate(values)

    def batches(self) -> "Iterator[Batch]":
        """Los lotes, en el mismo orden para todos y sin fin."""
        from enlace.preflight.synthetic import synthetic_batch

        config = self.config()
        ready = [synthetic_batch(config, self.work.batch, n) for n in range(DISTINCT_BATCHES)]
        while True:
            yield from ready

    def to_json(self) -> dict[str, Any]:
        """Lo que viaja al proceso del contrincante."""
        return {**asdict(self), "work": self.work.name}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Lo contrario de `to_json`."""
        return cls(**{**values, "work": WORKS[values["work"]]})


def _layer(section: str, name: str) -> dict[str, Any]:
    import yaml

    text = (ROOT / "configs" / section / f"{name}.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)[section]
    return values
