"""Los logits de la pérdida, de bloque en bloque: productos, softmax y gradientes sobre tampones.

Las fórmulas y el porqué de los bloques están en `enlace.model.loss`, que es quien usa esto.

Letras de forma: N filas, V vocabulario, E anchura del modelo, R filas de un bloque.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

IGNORED = -100
"""Objetivo que no cuenta: ni en la suma, ni en el número de tokens, ni en el gradiente."""
_SMALLEST_SLOPE = 1e-6
"""El menor 1 + 2ζs por el que se divide."""


class Rows:
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
        upstream: Tensor,
        out_RV: Tensor,
    ) -> None:
        """Escribe en `out_RV` el gradiente respecto a los logits; se redondea una vez, al final."""
        weight_R1 = (self.valid_N[chunk] * upstream)[:, None]
        slope_R1 = weight_R1 * (1 + 2 * z_weight * lse_N[chunk, None])
        target_R1 = softmax_RV.gather(1, self.index_N1[chunk]) * slope_R1 - weight_R1
        torch.mul(softmax_RV, slope_R1, out=out_RV)
        out_RV.scatter_(1, self.index_N1[chunk], target_R1.to(out_RV.dtype))

    def divide_target(
        self, chunk: slice, softmax_RV: Tensor, lse_N: Tensor, z_weight: float
    ) -> Tensor:
        """Deja en softmax_RV el gradiente dividido, fila a fila, por lo que devuelve (R,).

        Con c = 1 + 2ζs, el gradiente es c·(softmax − [j = t]/c). Así el factor, que también anula
        las filas que no cuentan, multiplica matrices de anchura E y no los logits.
        """
        slope_R = 1 + 2 * z_weight * lse_N[chunk]
        # c solo se anula con s = −1/(2ζ): dividir por algo pequeño cambia menos que el redondeo.
        slope_R = torch.where(slope_R.abs() < _SMALLEST_SLOPE, _SMALLEST_SLOPE, slope_R)
        # Cada fila toca una sola columna: no hay sumas repetidas y el orden es siempre el mismo.
        softmax_RV.scatter_add_(1, self.index_N1[chunk], -slope_R.reciprocal()[:, None])
        return torch.where(self.valid_N[chunk], slope_R, 0.0)


class Head:
    """La capa de salida por bloques, con tampones de (R, V) que se reutilizan.

    En CPU el softmax se escribe sobre los logits.
    """

    def __init__(self, hidden_NE: Tensor, weight_VE: Tensor, chunk_rows: int) -> None:
        self.hidden_NE = hidden_NE
        self.weight_VE = weight_VE.to(hidden_NE.dtype)
        self.chunk_rows = chunk_rows
        self._shape = (min(chunk_rows, hidden_NE.shape[0]), weight_VE.shape[0])
        self._logits_RV = None if _has_mixed_mm(hidden_NE) else self._buffer(torch.float32)
        self._softmax_RV = self._buffer(torch.float32) if hidden_NE.is_cuda else None
        self._rounded_RV: Tensor | None = None

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

    def softmax(self, logits_RV: Tensor, lse_R: Tensor | None = None) -> Tensor:
        """El softmax (R, V) de un bloque, en fp32; escribe en `lse_R` su logsumexp."""
        out_RV = logits_RV
        if self._softmax_RV is not None:
            out_RV = self._softmax_RV[: logits_RV.shape[0]]
        if lse_R is None:
            return torch.softmax(logits_RV, 1, out=out_RV)
        highest_R = logits_RV.amax(1)
        softmax_RV = torch.softmax(logits_RV, 1, out=out_RV)
        # softmax vale 1/Σexp(l − máx) en el máximo, nunca menos de 1/V: de ahí sale el logsumexp
        # sin otra pasada de exponenciales.
        torch.sub(highest_R, softmax_RV.amax(1).log_(), out=lse_R)
        return softmax_RV

    def rounded(self, softmax_RV: Tensor) -> Tensor:
        """Dónde escribir el gradiente de los logits, en el dtype de `hidden`."""
        if self.hidden_NE.dtype == softmax_RV.dtype:
            return softmax_RV
        if self._rounded_RV is None:
            self._rounded_RV = self._buffer(self.hidden_NE.dtype)
        return self._rounded_RV[: softmax_RV.shape[0]]

    def _buffer(self, dtype: torch.dtype) -> Tensor:
        return torch.empty(self._shape, dtype=dtype, device=self.hidden_NE.device)


class Gradients:
    """Acumula ∂/∂hidden (en su dtype) y ∂/∂weight (en fp32), solo los que hacen falta."""

    def __init__(self, head: Head, needed: tuple[bool, bool], active: bool) -> None:
        self._head = head
        self._hidden = torch.empty_like(head.hidden_NE) if active and needed[0] else None
        self._weight = (
            torch.zeros_like(head.weight_VE, dtype=torch.float32) if active and needed[1] else None
        )

    def add(self, chunk: slice, gradient_RV: Tensor, factor_R: Tensor | None = None) -> None:
        """Suma lo que aporta un bloque, con cada fila multiplicada por su factor."""
        head, factor_R1 = self._head, None if factor_R is None else factor_R[:, None]
        if self._hidden is not None:
            out_RE = self._hidden[chunk]
            if out_RE.dtype == torch.float32:
                torch.mm(gradient_RV, head.weight_VE, out=out_RE)
            else:
                out_RE.copy_(_mm_fp32(gradient_RV, head.weight_VE))
            if factor_R1 is not None:
                out_RE.mul_(factor_R1)
        if self._weight is not None:
            hidden_RE = head.hidden_NE[chunk]
            if factor_R1 is not None:
                hidden_RE = hidden_RE * factor_R1
            _add_mm_fp32(self._weight, gradient_RV.T, hidden_RE)

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
