"""Pérdida, perplejidad y bits por byte, ponderados por token.

La convención de bits por byte:

    bits por byte = Σ nats de todos los tokens predichos / (ln 2 · bytes UTF-8 de esos tokens)

El separador de documentos cuenta arriba (el modelo paga por decir dónde acaba cada texto) y no
abajo (no es texto: mide cero bytes), igual que los demás tokens especiales. Es, por tanto, la
longitud del código que escribiría los documentos y sus finales, nunca una cifra más favorable. Los
bytes se cuentan token a token, así que la medida vale también para una parte del split, para un
primer token que nadie predice y para los turnos que una máscara excluye. Como el denominador no
depende del tokenizador, dos modelos con vocabularios distintos se pueden comparar.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from enlace.backends import Backend
from enlace.data.streams import Batch
from enlace.errors import DataError
from enlace.model.loss import IGNORED
from enlace.model.transformer import Transformer


@dataclass(frozen=True)
class LossFigures:
    """Lo que dice una validación.

    Attributes:
        loss: pérdida media por token, en nats, sin z-loss.
        perplexity: e elevado a la pérdida (infinita si no cabe en un float).
        bits_per_byte: según la convención del módulo; `None` si no se dieron los bytes por id.
        tokens: tokens predichos.
        raw_bytes: bytes UTF-8 de esos tokens; `None` como `bits_per_byte`.
    """

    loss: float
    perplexity: float
    bits_per_byte: float | None
    tokens: int
    raw_bytes: int | None

    def as_json(self) -> dict[str, Any]:
        """Las cifras para JSON: una que no es finita se escribe como `null`."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


def evaluate_loss(
    model: Transformer,
    batches: Iterable[Batch],
    backend: Backend,
    bytes_per_id: torch.Tensor | None = None,
) -> LossFigures:
    """Mide el modelo sobre `batches`; el resultado no depende de cómo se repartan en lotes.

    Cada lote aporta sumas, no medias, y la división es una sola, al final. El modo (`train` o
    `eval`) de cada módulo queda como estaba y no se consume azar.

    Args:
        model: el modelo, en el dispositivo de `backend`.
        batches: lotes con ids y objetivos (S, T) int64 en CPU; −100 no se predice.
        backend: dispositivo, autocast y atención con los que se entrena.
        bytes_per_id: (V,) int64 en CPU, de `byte_counts.bytes_per_id`.

    Raises:
        DataError: si no hay ningún token que predecir.
    """
    nats = torch.zeros((), dtype=torch.float64, device=backend.device)
    tokens = torch.zeros((), dtype=torch.int64, device=backend.device)
    raw_bytes = 0
    with evaluation_mode(model), torch.no_grad(), backend.sdpa(), backend.autocast():
        for batch in batches:
            targets_BT = batch.targets.to(backend.device)
            sums = model.loss_sums(batch.ids.to(backend.device), targets_BT)
            nats += sums.ce.double()
            tokens += sums.count
            if bytes_per_id is not None:
                raw_bytes += int(bytes_per_id[batch.targets[batch.targets != IGNORED]].sum())
    count = int(tokens)
    if count == 0:
        raise DataError(
            "la validación no tiene ningún token que predecir; revisa data/shards o sube "
            "data.val_fraction"
        )
    return _figures(float(nats), count, None if bytes_per_id is None else raw_bytes)


def loss_evaluator(
    batches: Callable[[], Iterable[Batch]],
    backend: Backend,
    bytes_per_id: torch.Tensor | None = None,
    prefix: str = "val",
) -> Callable[[Transformer], Iterable[tuple[str, float]]]:
    """El evaluador que la etapa entrega al bucle: cede `val_loss`, `val_perplexity` y demás.

    Args:
        batches: abre los lotes de validación desde el principio, en cada llamada.
        backend: como en `evaluate_loss`.
        bytes_per_id: como en `evaluate_loss`; sin él no se cede `bits_per_byte`.
        prefix: lo que precede al nombre de cada cifra.
    """

    def evaluate(model: Transformer) -> Iterable[tuple[str, float]]:
        figures = evaluate_loss(model, batches(), backend, bytes_per_id)
        yield f"{prefix}_loss", figures.loss
        yield f"{prefix}_perplexity", figures.perplexity
        if figures.bits_per_byte is not None:
            yield f"{prefix}_bits_per_byte", figures.bits_per_byte

    return evaluate


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Pone el modelo en `eval` y, al salir, deja cada módulo en el modo en que estaba."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _figures(nats: float, tokens: int, raw_bytes: int | None) -> LossFigures:
    loss = nats / tokens
    try:
        perplexity = math.exp(loss)
    except OverflowError:
        perplexity = math.inf
    bits = nats / (math.log(2) * raw_bytes) if raw_bytes else None
    return LossFigures(loss, perplexity, bits, tokens, raw_bytes)
