"""Cómo se dicen las cosas en las dos tablas, la de lo medido y la de lo estimado."""

from enlace.figures import at_least

CHINCHILLA_TOKENS_PER_PARAMETER = 20
"""Hoffmann et al. 2022 (arXiv 2203.15556): lo que rinde más por FLOP, no un mínimo."""

CHECKPOINTING = {
    "none": "sin checkpointing",
    "mlp": "checkpointing mlp",
    "block": "checkpointing block",
}
"""Por `hardware.activation_checkpointing`: el nombre es el valor que se escribe."""


def tokens_per_parameter(ratio: float) -> str:
    """«19,9 (Chinchilla: 20)»."""
    return f"{at_least(ratio, 1)} (Chinchilla: {CHINCHILLA_TOKENS_PER_PARAMETER})"
