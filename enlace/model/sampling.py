"""Cómo se elige el token siguiente: los filtros de transformers, en su orden, y el sorteo.

Penalización de lo repetido → temperatura → top-k → top-p → min-p → softmax → sorteo: con los mismos
logits, las mismas probabilidades que `RepetitionPenaltyLogitsProcessor` (CTRL, arXiv 1909.05858),
`TemperatureLogitsWarper`, `TopKLogitsWarper`, `TopPLogitsWarper` (arXiv 1904.09751) y
`MinPLogitsWarper` (arXiv 2407.01082). llama.cpp los aplica en otro orden (docs/chat.md).

Letras de forma: B secuencias, T tokens del contexto, V vocabulario.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_GREEDY_BELOW = 1e-30


@dataclass(frozen=True)
class Sampling:
    """Qué filtros se aplican; los valores de fábrica no quitan ni cambian nada.

    Attributes:
        temperature: 0 elige siempre el mayor logit; 1 no cambia las probabilidades.
        top_k: candidatos por token (0: todos).
        top_p: los candidatos más probables que juntos suman esta probabilidad (1: todos).
        min_p: fuera lo que tenga menos de esta parte de la probabilidad del mejor (0: nada).
        repetition_penalty: divide los logits positivos, y multiplica los negativos, de lo que ya
            está en el contexto, prompt incluido (1: nada).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        """Comprueba los intervalos.

        Raises:
            ValueError: un valor está fuera del suyo.
        """
        for name in ("temperature", "top_k"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(
                    f"{name}={getattr(self, name)} debe ser un número finito, 0 o mayor"
                )
        for name in ("top_p", "min_p"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} debe estar entre 0 y 1")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} debe ser un número finito mayor "
                "que 0"
            )

    @property
    def greedy(self) -> bool:
        """Si no hay azar. Una temperatura que desbordaría los logits en fp32 cuenta como 0."""
        return self.temperature < _GREEDY_BELOW


def penalize(logits_BV: Tensor, context_BT: Tensor, penalty: float) -> Tensor:
    """Los logits (B, V) con lo que ya está en `context_BT` penalizado, una vez cada id."""
    seen_BT = logits_BV.gather(1, context_BT)
    seen_BT = torch.where(seen_BT < 0, seen_BT * penalty, seen_BT / penalty)
    return logits_BV.scatter(1, context_BT, seen_BT)


def warp_logits(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Logits (B, V) en fp32 tras temperatura, top-k, top-p y min-p; los descartados valen −inf.

    Los empates con el k-ésimo se conservan, como en transformers, y el mejor se queda siempre.
    """
    if not sampling.top_k and sampling.top_p == 1:
        return _keep_min_p(logits_BV.float() / sampling.temperature, sampling.min_p)
    kept_BC, ids_BC = _candidates(logits_BV, sampling)
    return torch.full_like(logits_BV, float("-inf"), dtype=torch.float32).scatter(
        1, ids_BC, kept_BC
    )


def next_ids(
    logits_BV: Tensor,
    sampling: Sampling,
    generator: torch.Generator | None = None,
    context_BT: Tensor | None = None,
) -> Tensor:
    """Los ids siguientes (B,) int64: el mayor logit con temperatura 0; si no, una muestra.

    `context_BT` es lo que lleva cada secuencia; solo hace falta para penalizar lo repetido.
    """
    if sampling.repetition_penalty != 1 and context_BT is not None:
        logits_BV = penalize(logits_BV.float(), context_BT, sampling.repetition_penalty)
    if sampling.greedy:
        return logits_BV.argmax(dim=-1)
    if not sampling.top_k:
        probabilities_BV = warp_logits(logits_BV, sampling).softmax(dim=-1)
        return torch.multinomial(probabilities_BV, 1, generator=generator).squeeze(1)
    # Sortear entre los pocos que quedan: hacerlo entre 32 768 cuesta un milisegundo.
    kept_BC, ids_BC = _candidates(logits_BV, sampling)
    drawn_B1 = torch.multinomial(kept_BC.softmax(dim=-1), 1, generator=generator)
    return ids_BC.gather(1, drawn_B1).squeeze(1)


def _candidates(logits_BV: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Los logits filtrados (B, C) de los mejores, de mayor a menor, y sus ids.

    Tras top-k los demás filtros solo miran esos: recorrer el vocabulario entero en cada uno es
    medio milisegundo por token.
    """
    logits_BV = logits_BV.float() / sampling.temperature
    size = logits_BV.shape[-1]
    count = min(sampling.top_k or size, size)
    kept_BC, ids_BC = logits_BV.topk(count, dim=-1)
    smallest_B1 = kept_BC[:, -1:]
    tied = int((logits_BV >= smallest_B1).sum(dim=-1).amax())
    if tied > count:
        kept_BC, ids_BC = logits_BV.topk(tied, dim=-1)
        kept_BC = kept_BC.masked_fill(kept_BC < smallest_B1, float("-inf"))
    kept_BC = _keep_top_p(kept_BC, sampling.top_p)
    return _keep_min_p(kept_BC, sampling.min_p), ids_BC


def _keep_top_p(sorted_BC: Tensor, top_p: float) -> Tensor:
    if top_p == 1:
        return sorted_BC
    # De menor a mayor, como transformers: así redondea igual la suma.
    below_BC = sorted_BC.flip(-1).softmax(dim=-1).cumsum(dim=-1).flip(-1)
    dropped_BC = below_BC <= 1 - top_p
    dropped_BC[:, 0] = False
    return sorted_BC.masked_fill(dropped_BC, float("-inf"))


def _keep_min_p(logits_BC: Tensor, min_p: float) -> Tensor:
    if min_p == 0:
        return logits_BC
    probabilities_BC = logits_BC.softmax(dim=-1)
    floor_B1 = min_p * probabilities_BC.amax(dim=-1, keepdim=True)
    return logits_BC.masked_fill(probabilities_BC < floor_B1, float("-inf"))
