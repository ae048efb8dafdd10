"""Entropía cruzada de la capa de salida, por bloques de filas y con z-loss.

Con N filas (tokens) y vocabulario V, los logits enteros ocupan 4·N·V bytes y el camino ingenuo
(logits en fp32, log-softmax y su gradiente) llega a 20·N·V: 5 GiB con N = 8192 y V = 32768. Aquí
nunca existen más de `chunk_rows` filas de logits a la vez, así que la memoria no crece con N·V.

Para una fila con logits l, objetivo t y s = logsumexp(l):

    ce = s − l_t                        entropía cruzada
    z  = s²                             z-loss (PaLM, arXiv 2204.02311; Wortsman et al., 2309.14322)
    objetivo = ce + ζ·z
    ∂objetivo/∂l_j = (1 + 2ζs)·softmax(l)_j − [j = t]

El momento en que se forman los gradientes depende de la precisión de `hidden`:

- **fp32**: en la propia pasada hacia delante. Ahorra recalcular los logits (un GEMM de cuatro), que
  en CPU es lo más caro, y el gradiente que llega después solo multiplica el resultado.
- **fp16 y bf16**: en la pasada hacia atrás, recalculando los logits. El gradiente que llega trae la
  escala de la pérdida (Micikevicius et al., arXiv 1710.03740) y hay que aplicarlo *antes* de
  redondear a 16 bits: redondear primero convierte en cero buena parte del gradiente y deja sin
  efecto a GradScaler.

Letras de forma: N filas, V vocabulario, E anchura del modelo, R filas de un bloque.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

IGNORED = -100
"""Objetivo que no cuenta: ni en la suma, ni en el número de tokens, ni en el gradiente."""


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
        recompute: formar los gradientes hacia atrás también en fp32 (en 16 bits es obligado).

    Raises:
        ValueError: `chunk_rows` no es positivo o (en CPU) hay objetivos fuera de [0, V).
    """
    if chunk_rows <= 0:
        raise ValueError(f"chunk_rows={chunk_rows} debe ser al menos 1")
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
    objective, ce, z = apply(hidden_NE, weight_VE, targets_N, z_weight, chunk_rows, moment)
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
        chunk_rows: int,
        moment: _Moment,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = _Rows(targets_N)
        # Dentro de autocast, un mm de fp32 se redondearía a 16 bits sin que nadie lo pidiera.
        with torch.autocast(hidden_NE.device.type, enabled=False):
            head = _Head(hidden_NE, weight_VE, chunk_rows)
            gradients = _Gradients(head, ctx.needs_input_grad[:2], moment is _Moment.FORWARD)
            lse_N = torch.empty(hidden_NE.shape[0], device=hidden_NE.device)
            target_logit_N = torch.empty_like(lse_N)
            for chunk in head.chunks():
                logits_RV = head.logits(chunk)
                target_logit_N[chunk] = logits_RV.gather(1, rows.index_N1[chunk]).squeeze(1)
                softmax_RV = head.softmax(logits_RV)
                # softmax vale 1/Σexp(l − máx) en el máximo, nunca menos de 1/V: de ahí sale el
                # logsumexp sin otra pasada de exponenciales.
                lse_N[chunk] = logits_RV.amax(1) - softmax_RV.amax(1).log()
                if moment is _Moment.FORWARD:
                    gradients.add(chunk, rows.logits_gradient(chunk, softmax_RV, lse_N, z_weight))
        ctx.moment, ctx.z_weight, ctx.chunk_rows = moment, z_weight, chunk_rows
        if moment is _Moment.FORWARD:
            ctx.save_for_backward(*gradients.result())
        elif moment is _Moment.BACKWARD:
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
        if ctx.moment is _Moment.FORWARD:
            hidden_gradient, weight_gradient = (
                None if gradient is None else gradient * upstream for gradient in ctx.saved_tensors
            )
            return hidden_gradient, weight_gradient, None, None, None, None
        hidden_NE, weight_VE, targets_N, lse_N = ctx.saved_tensors
        rows = _Rows(targets_N)
        with torch.autocast(hidden_NE.device.type, enabled=False):
            head = _Head(hidden_NE, weight_VE, ctx.chunk_rows)
            gradients = _Gradients(head, ctx.needs_input_grad[:2], active=True)
            for chunk in head.chunks():
                softmax_RV = head.softmax(head.logits(chunk))
                gradients.add(
                    chunk, rows.logits_gradient(chunk, softmax_RV, lse_N, ctx.z_weight, upstream)
                )
        return *gradients.result(), None, None, None, None


class _Rows:
    """Qué filas cuentan y cuál es el logit de su objetivo."""

    def __init__(self, targets_N: Tensor) -> None:
        self.valid_N = targets_N != IGNORED
        self.index_N1 = torch.where(self.valid_N, targets_N, 0)[:, None]

    def logits_gradient(
        self,
        chunk: slice,
        softmax_RV: Tensor,
        lse_N: Tensor,
        z_weight: float,
        upstream: Tensor | None = None,
    ) -> Tensor:
        """El gradiente del objetivo respecto a los logits (R, V) en fp32, escrito en softmax_RV."""
        weight_R = self.valid_N[chunk].float()
        if upstream is not None:
            weight_R = weight_R * upstream
        softmax_RV.mul_((weight_R * (1 + 2 * z_weight * lse_N[chunk]))[:, None])
        # Cada fila toca una sola columna: no hay sumas repetidas y el orden es siempre el mismo.
        return softmax_RV.scatter_add_(1, self.index_N1[chunk], -weight_R[:, None])


class _Head:
    """La capa de salida por bloques, con tampones de (R, V) en fp32 que se reutilizan."""

    def __init__(self, hidden_NE: Tensor, weight_VE: Tensor, chunk_rows: int) -> None:
        self.hidden_NE = hidden_NE
        self.weight_VE = weight_VE.to(hidden_NE.dtype)
        self.chunk_rows = chunk_rows
        shape = (min(chunk_rows, hidden_NE.shape[0]), weight_VE.shape[0])
        self._softmax_RV = torch.empty(shape, device=hidden_NE.device)
        self._logits_RV = (
            None if _has_mixed_mm(hidden_NE) else torch.empty(shape, device=hidden_NE.device)
        )

    def chunks(self) -> Iterator[slice]:
        """Los bloques de filas, en orden; el último puede ser más corto."""
        rows = self.hidden_NE.shape[0]
        for start in range(0, rows, self.chunk_rows):
            yield slice(start, min(start + self.chunk_rows, rows))

    def logits(self, chunk: slice) -> Tensor:
        """Los logits (R, V) de un bloque, en fp32."""
        hidden_RE = self.hidden_NE[chunk]
        buffer = None if self._logits_RV is None else self._logits_RV[: hidden_RE.shape[0]]
        return _mm_fp32(hidden_RE, self.weight_VE.T, buffer)

    def softmax(self, logits_RV: Tensor) -> Tensor:
        """El softmax (R, V) de un bloque, en fp32."""
        return torch.softmax(logits_RV, 1, out=self._softmax_RV[: logits_RV.shape[0]])


class _Gradients:
    """Acumula ∂/∂hidden (en su dtype) y ∂/∂weight (en fp32), solo los que hacen falta."""

    def __init__(self, head: _Head, needed: tuple[bool, bool], active: bool) -> None:
        self._head = head
        self._hidden = torch.empty_like(head.hidden_NE) if active and needed[0] else None
        self._weight = (
            torch.zeros_like(head.weight_VE, dtype=torch.float32) if active and needed[1] else None
        )

    def add(self, chunk: slice, logits_gradient_RV: Tensor) -> None:
        """Suma lo que aporta un bloque; el redondeo a 16 bits ocurre aquí, ya escalado."""
        head = self._head
        gradient_RV = logits_gradient_RV.to(head.hidden_NE.dtype)
        if self._hidden is not None:
            self._hidden[chunk] = _mm_fp32(gradient_RV, head.weight_VE)
        if self._weight is not None:
            _add_mm_fp32(self._weight, gradient_RV.T, head.hidden_NE[chunk])

    def result(self) -> tuple[Tensor | None, Tensor | None]:
        """Los dos gradientes; None donde no se pidió."""
        return self._hidden, self._weight


def _has_mixed_mm(tensor: Tensor) -> bool:
    """Si sus productos pueden leer 16 bits y dar fp32 directamente (solo existe en CUDA)."""
    return tensor.is_cuda and tensor.dtype != torch.float32


def _mm_fp32(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Producto con entradas de 32 o 16 bits y resultado fp32, sin redondeo intermedio."""
    if _has_mixed_mm(left):
        return torch.mm(left, right, out_dtype=torch.float32)
    # En CPU los GEMM de 16 bits son mucho más lentos que los de fp32 y redondean la salida.
    return torch.mm(left.float(), right.float(), out=out)


def _add_mm_fp32(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total += left @ right` en fp32."""
    if _has_mixed_mm(left):
        total += torch.mm(left, right, out_dtype=torch.float32)
    else:
        total.addmm_(left.float(), right.float())


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
