"""Hasta qué paso promete un entrenamiento la igualdad bit a bit, y por qué no más allá."""

from collections.abc import Sequence

from enlace.manifest import Segment

_SAME_RESULT = (
    "code",
    "fingerprint",
    "run_name",
    "hardware.name",
    "hardware.memory_gib",
    "hardware.memory_margin",
    "hardware.preflight",
    "model.name",
    "train",
    "data",
)
"""Claves que pueden cambiar a mitad sin tocar un bit: el código salvo en lo que hace (esa huella es
`code_normalized`), lo que solo mide o nombra, y lo operativo de `train` y `data`, que decide cuándo
se mira y se guarda."""


def breaking(segment: Segment) -> dict[str, list[object]]:
    """Lo que cambió al empezar un segmento y puede mover los bits: {clave: [antes, ahora]}."""
    return {key: value for key, value in segment.differences.items() if not _harmless(key)}


def exact_until(segments: Sequence[Segment]) -> int | None:
    """El primer paso desde el que ya no se promete el mismo resultado; None si se promete entero.

    Una vuelta atrás también acaba la promesa: un entrenamiento tranquilo no la habría dado.
    """
    for segment in segments:
        steps = [rewind.to_step for rewind in segment.rewinds]
        if breaking(segment):
            return segment.from_step
        if steps:
            return min(steps)
    return None


def _harmless(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in _SAME_RESULT)
