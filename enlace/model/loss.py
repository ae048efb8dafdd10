"""Entropía cruzada de la capa de salida, por bloques de filas y con z-loss.

Con N filas (tokens) y vocabulario V, los logits enteros ocupan 4·N·V bytes y el camino ingenuo
(logits en fp32, log-softmax y su gradiente) llega a 20·N·V: 5 GiB con N = 8192 y V = 32768. Aquí
nunca existen más de `chunk_rows` filas de logits a la vez, así que la memoria no crece con N·V.

Para una fila con logits l, objetivo t y s = logsumexp(l):

    ce = s − l_t                        entropía cruzada
    z  = s²                             z-loss (PaLM, arXiv 2204.02311; Wortsman et al., 2309.14322)
    objetivo = ce + ζ·z
    ∂objetivo/∂l_j = (1 + 2ζs)·softmax(l)_j − [j = t]

Cada bloque de filas se parte además en bloques de columnas: cada uno tiene su softmax y su
logsumexp s_b, y exp(s_b − s) los une después (`Rows.softmax_factors`).

El momento en que se forman los gradientes depende de la precisión de `hidden`:

- **fp32**: en la propia pasada hacia delante. Ahorra recalcular los logits (un GEMM de cuatro), que
  en CPU es lo más caro, y el gradiente que llega después solo multiplica el resultado.
- **fp16 y bf16**: en la pasada hacia atrás, recalculando los logits. El gradiente que llega trae la
  escala de la pérdida (Micikevicius et al., arXiv 1710.03740) y hay que aplicarlo *antes* de
  redondear a 16 bits: redondear primero convierte en cero buena parte del gradiente y deja sin
  efecto a GradScaler.

Letras de forma: N filas, V vocabulario, E anchura del modelo, R filas y C columnas de un bloque, B
bloques de columnas.
"""

from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from enlace.model.loss_chunks import IGNORED, Gradients, Head, Rows

__all__ = ["IGNORED", "LossSums", "linear_cross_entropy"]


class LossSums(NamedTuple):
    """Sumas sobre los objetivos que cuentan; se dividen fuera, por los tokens de todo el paso."""

    objective: Tensor
    """Escalar fp32 diferenciable: Σ ce + z_weight·Σ logsumexp²."""
    ce: Tensor
    """Escalar fp32 sin grafo: Σ entropía cruzada, en nats."""
    z: Tensor
    """Escalar fp32 sin grafo: Σ logsumexp²."""
    count: Tensor  # type: ignore[assignment]
    """Escalar int64: objetivos distintos de −100."""


def linear_cross_entropy(
    hidden_NE: Tensor,
    weight_VE: Tensor,
    targets_N: Tensor,
    *,
    z_weight: float,
    chunk_rows: int,
    chunk_columns: int | None = None,
    recompute: bool = False,
) -> LossSums:
    """Sumas de entropía cruzada y z-loss de `hidden @ weight.T` contra `targets`.

    torch.compile no entra en el cálculo: desenrollaría el bucle de bloques sin ganar nada.

    Args:
        hidden_NE: estados finales (N, E) en fp32, fp16 o bf16; su dtype es el de los GEMM.
        weight_VE: matriz de salida (V, E) en fp32; su gradiente se acumula y devuelve en fp32.
        targets_N: ids (N,) int64 en [0, V), o −100 para las filas que no cuentan.
        z_weight: peso ζ de la z-loss.
        chunk_rows: filas de logits que se calculan a la vez.
        chunk_columns: columnas de cada producto; sin ellas, las V. Solo en fp32 o sin gradiente.
        recompute: formar los gradientes hacia atrás también en fp32 (en 16 bits es obligado).

    Raises:
        ValueError: un bloque sin filas o sin columnas, o (en CPU) objetivos fuera de [0, V).
    """
    for name, value in (("chunk_rows", chunk_rows), ("chunk_columns", chunk_columns)):
        if value is not None and value <= 0:
            raise ValueError(f"{name}={value} debe ser al menos 1")
    _check_targets(targets_N, weight_VE.shape[0])
    differentiable = torch.is_grad_enabled() and (
        hidden_NE.requires_grad or weight_VE.requires_grad
    )
    if not differentiable:
        moment = _Moment.NEVER
    elif recompute or hidden_NE.dtype != torch.float32:
        moment = _Moment.BACKWARD
    else:
        moment = _Moment.FORWARD
    apply = _LinearCrossEntropy.apply
    if torch.compiler.is_compiling():
        # Como decorador cargaría torch._dynamo, que pesa segundos, en cada proceso que no compila.
        apply = torch.compiler.disable(apply)
    block = (chunk_rows, chunk_columns)
    objective, ce, z = apply(hidden_NE, weight_VE, targets_N, z_weight, block, moment)
    return LossSums(objective, ce, z, (targets_N != IGNORED).sum())


class _Moment(Enum):
    """Cuándo se forman los gradientes."""

    NEVER = 0
    FORWARD = 1
    BACKWARD = 2


class _LinearCrossEntropy(torch.autograd.Function):
    """El grafo de `linear_cross_entropy`; solo el objetivo es diferenciable."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NE: Tensor,
        weight_VE: Tensor,
        targets_N: Tensor,
        z_weight: float,
        block: tuple[int, int | None],
        moment: _Moment,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = Rows(targets_N)
        forms = moment is _Moment.FORWARD
        # Dentro de autocast, un mm de fp32 se redondearía a 16 bits sin que nadie lo pidiera.
        with torch.autocast(hidden_NE.device.type, enabled=False):
            head = Head(hidden_NE, weight_VE, block, keep=forms)
            gradients = Gradients(head, ctx.needs_input_grad[:2], forms)
            lse_N = torch.empty(hidden_NE.shape[0], device=hidden_NE.device)
            target_logit_N = torch.empty_like(lse_N)
            for chunk in head.chunks():
                softmaxes, lse_BR = head.softmaxes(chunk, rows, target_logit_N[chunk])
                torch.logsumexp(lse_BR, 0, out=lse_N[chunk])
                if forms:
                    factors = rows.softmax_factors(chunk, lse_BR, lse_N[chunk], z_weight)
                    for part, softmax_RC, inverse_R, factor_R in zip(
                        head.columns(), softmaxes, *factors, strict=True
                    ):
                        rows.subtract_target(chunk, part, softmax_RC, inverse_R)
                        gradients.add(chunk, part, softmax_RC, factor_R)
        ctx.z_weight, ctx.chunk_rows = z_weight, block[0]
        # Fuera de `save_for_backward`, que no deja cambiarlos en el sitio ni soltarlos antes.
        ctx.formed = gradients.result() if forms else None
        if moment is not _Moment.NEVER:
            ctx.save_for_backward(hidden_NE, weight_VE, targets_N, lse_N)
        ce = torch.where(rows.valid_N, lse_N - target_logit_N, 0.0).sum()
        z = torch.where(rows.valid_N, lse_N.square(), 0.0).sum()
        ctx.mark_non_differentiable(ce, z)
        return ce + z_weight * z, ce, z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, upstream: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        if ctx.formed is not None:
            # Se entregan: otra pasada por el mismo grafo los vuelve a calcular.
            formed, ctx.formed = ctx.formed, None
            hidden_gradient, weight_gradient = (
                None if gradient is None else gradient.mul_(upstream) for gradient in formed
            )
            return hidden_gradient, weight_gradient, None, None, None, None
        hidden_NE, weight_VE, targets_N, lse_N = ctx.saved_tensors
        rows = Rows(targets_N)
        with torch.autocast(hidden_NE.device.type, enabled=False):
            # La fila entera: su logsumexp ya se sabe y el redondeo a 16 bits es uno solo.
            head = Head(hidden_NE, weight_VE, (ctx.chunk_rows, None))
            gradients = Gradients(head, ctx.needs_input_grad[:2], active=True)
            (whole,) = head.columns()
            for chunk in head.chunks():
                softmax_RV = head.softmax(chunk, whole, head.logits(chunk, whole))
                out_RV = head.rounded(chunk, whole, softmax_RV)
                rows.logits_gradient(chunk, softmax_RV, lse_N, ctx.z_weight, upstream, out_RV)
                gradients.add(chunk, whole, out_RV)
        return *gradients.result(), None, None, None, None


def _check_targets(targets_N: Tensor, vocab_size: int) -> None:
    """Rechaza objetivos imposibles donde comprobarlo no obliga a sincronizar con una GPU."""
    if targets_N.device.type != "cpu":
        return
    wrong = targets_N[(targets_N != IGNORED) & ((targets_N < 0) | (targets_N >= vocab_size))]
    if wrong.numel():
        raise ValueError(
            f"el objetivo {int(wrong[0])} no está en el vocabulario (0 a {vocab_size - 1}) ni es "
            f"{IGNORED}; comprueba que los shards son de este tokenizador"
        )
