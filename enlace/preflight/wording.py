"""Cómo se llaman las cosas en las dos tablas, la de lo medido y la de lo estimado."""

CHECKPOINTING = {
    "none": "sin checkpointing",
    "mlp": "checkpointing mlp",
    "block": "checkpointing block",
}
"""Por `hardware.activation_checkpointing`: el nombre es el valor que se escribe."""
