"""Lotes inventados que cuestan lo mismo que los de verdad, sin necesidad de corpus.

Los ids siguen la ley de Zipf–Mandelbrot, como las palabras de un texto: pocas filas de la matriz
de embeddings reciben casi todo el gradiente y las demás casi nada. Con ids uniformes cada fila
recibiría lo mismo y la escala de los gradientes, que decide los pasos saltados en fp16, sería otra.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from enlace.config.documents import SEPARATOR_ID
from enlace.config.schema import Config
from enlace.data.streams import Batch
from enlace.errors import CheckpointError

_MANDELBROT_SHIFT = 2.7
"""Desplazamiento clásico del rango (Mandelbrot, 1953) que aplana las palabras más frecuentes."""
_DOCUMENT_TOKENS = 512
"""Longitud media de los documentos inventados; solo decide cada cuánto aparece el separador."""


def synthetic_batch(config: Config, rows: int, step: int) -> Batch:
    """El lote inventado del paso `step`: función pura de (semilla, paso).

    Args:
        config: da el vocabulario, `seq_len` y la semilla.
        rows: secuencias S del lote.
        step: qué lote.

    Returns:
        ids y objetivos (S, T) int64 en CPU, con `T = model.seq_len`.
    """
    generator = np.random.default_rng([config.train.seed, step])
    shape = (rows, config.model.seq_len + 1)
    ids = 1 + np.searchsorted(_cumulative(config.model.vocab_size - 1), generator.random(shape))
    ids[generator.random(shape) < 1 / _DOCUMENT_TOKENS] = SEPARATOR_ID
    tokens = torch.from_numpy(ids)
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def _cumulative(ranks: int) -> npt.NDArray[np.float64]:
    weights = 1 / (np.arange(1, ranks + 1, dtype=np.float64) + _MANDELBROT_SHIFT)
    cumulative: npt.NDArray[np.float64] = np.cumsum(weights)
    # Dividir el último por sí mismo deja 1.0 exacto: ningún sorteo cae fuera.
    cumulative /= cumulative[-1]
    return cumulative


class SyntheticStream:
    """Un `TokenStream` sin corpus: lo que `train_step`, `save_run` y `open_run` esperan."""

    fingerprint = "synthetic"

    def __init__(self, config: Config) -> None:
        self._config = config

    def batch(self, step: int) -> Batch:
        """El lote entero del paso `step`: (S, T) con todas las secuencias del paso."""
        return synthetic_batch(self._config, self._config.sequences_per_step, step)

    def state_dict(self, step: int) -> dict[str, Any]:
        """El estado que guarda el checkpoint."""
        return {"fingerprint": self.fingerprint, "seed": self._config.train.seed, "step": step}

    def check_state(self, state: dict[str, Any]) -> None:
        """Rechaza el estado de otro flujo.

        Raises:
            CheckpointError: el estado no es de este flujo.
        """
        expected = self.state_dict(state.get("step", 0))
        if state != expected:
            raise CheckpointError(
                f"el checkpoint del preflight guarda el flujo {state} y se esperaba {expected}; "
                "borra .enlace/preflight y repite make preflight"
            )
