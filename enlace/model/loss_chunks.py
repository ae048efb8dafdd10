"""Los logits de la pérdida, de bloque en bloque: productos, softmax y gradientes sobre tampones.

Las fórmulas y el porqué de los bloques están en `enlace.model.loss`, que es quien usa esto.

Letras de forma: N filas, V vocabulario, E anchura del modelo, R filas y C columnas de un bloque, B
bloques de columnas.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

IGNORED = -100
"""Objetivo que no cuenta: ni en la suma, ni en el número de tokens, ni en el gradiente."""
_SMALLEST_SLOPE = 1e-6
"""El menor 1 + 2ζs por el que se divide."""
_SMALLEST_SHARE = 1e-20
"""La menor probabilidad de un bloque entero por la que se divide: menos que eso no cambia nada."""


class Rows:
    """Qué filas cuentan y cuál es el logit de su objetivo."""

    def __init__(self, targets_N: Tensor) -> None:
        self.valid_N = targets_N != IGNORED
        self._index_N = torch.where(self.valid_N, targets_N, 0)

    def target(self, chunk: slice, columns: slice, values_RC: Tensor, out_R: Tensor) -> None:
        """Escribe en `out_R` el valor del objetivo, en las filas que lo tienen en esas columnas."""
        index_R1, inside_R = self._place(chunk, columns)
        out_R.copy_(torch.where(inside_R, values_RC.gather(1, index_R1).squeeze(1), out_R))

    def subtract_target(
        self, chunk: slice, columns: slice, values_RC: Tensor, amount_R: Tensor
    ) -> None:
        """Resta `amount_R` al objetivo, en las filas que lo tienen en esas columnas.

        Cada fila toca una sola columna: no hay sumas repetidas y el orden es siempre el mismo.
        """
        index_R1, inside_R = self._place(chunk, columns)
        values_RC.scatter_add_(1, index_R1, torch.where(inside_R, -amount_R, 0.0)[:, None])

    def softmax_factors(
        self, chunk: slice, lse_BR: Tensor, lse_R: Tensor, z_weight: float
    ) -> tuple[Tensor, Tensor]:
        """Por qué se multiplica el softmax de cada bloque de columnas para que sea el gradiente.

        Con s el logsumexp de la fila, s_b el del bloque, c = 1 + 2ζs y k = c·exp(s_b − s), el
        gradiente es k·softmax_b − [j = t] = k·(softmax_b − [j = t]/k). Así k, que también anula las
        filas que no cuentan, multiplica matrices de anchura E y no los logits.

        Returns:
            1/k, y k, que es 0 donde la fila no cuenta; los dos (B, R).
        """
        slope_R = 1 + 2 * z_weight * lse_R
        # c solo se anula con s = −1/(2ζ): dividir por algo pequeño cambia menos que el redondeo.
        slope_R = torch.where(slope_R.abs() < _SMALLEST_SLOPE, _SMALLEST_SLOPE, slope_R)
        factor_BR = (lse_BR - lse_R).exp_().clamp_(min=_SMALLEST_SHARE).mul_(slope_R)
        return factor_BR.reciprocal(), torch.where(self.valid_N[chunk], factor_BR, 0.0)

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
        index_R1 = self._index_N[chunk, None]
        weight_R1 = (self.valid_N[chunk] * upstream)[:, None]
        slope_R1 = weight_R1 * (1 + 2 * z_weight * lse_N[chunk, None])
        target_R1 = softmax_RV.gather(1, index_R1) * slope_R1 - weight_R1
        torch.mul(softmax_RV, slope_R1, out=out_RV)
        out_RV.scatter_(1, index_R1, target_R1.to(out_RV.dtype))

    def _place(self, chunk: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """La columna del objetivo dentro de `columns` (R, 1), o 0, y si está en ellas (R,)."""
        local_R = self._index_N[chunk] - columns.start
        inside_R = (local_R >= 0) & (local_R < columns.stop - columns.start)
        return torch.where(inside_R, local_R, 0)[:, None], inside_R


class Head:
    """La capa de salida por bloques de filas y de columnas, con tampones que se reutilizan.

    Los logits de un bloque van seguidos en la memoria, y no cada fila a V números de la anterior:
    así el producto que los escribe y los que los leen los encuentran en la caché, y las columnas de
    filas distintas no se estorban en ella. En CPU el softmax se escribe sobre los logits.
    """

    def __init__(
        self, hidden_NE: Tensor, weight_VE: Tensor, block: tuple[int, int | None], keep: bool = True
    ) -> None:
        """Reserva los tampones.

        Args:
            hidden_NE: estados (N, E).
            weight_VE: la matriz de salida (V, E).
            block: filas y columnas de un bloque; sin columnas, todas.
            keep: si los bloques de unas mismas filas deben existir a la vez.
        """
        self.hidden_NE = hidden_NE
        self.weight_VE = weight_VE.to(hidden_NE.dtype)
        self.vocab = weight_VE.shape[0]
        self.chunk_rows = min(block[0], max(1, hidden_NE.shape[0]))
        self.chunk_columns = min(block[1] or self.vocab, self.vocab)
        self._keep = keep
        self._logits = None if _has_mixed_mm(hidden_NE) else self._buffer(torch.float32)
        self._softmax = self._buffer(torch.float32) if hidden_NE.is_cuda else None
        self._rounded: Tensor | None = None

    def chunks(self) -> Iterator[slice]:
        """Los bloques de filas, en orden; el último puede ser más corto."""
        return _slices(self.hidden_NE.shape[0], self.chunk_rows)

    def columns(self) -> Iterator[slice]:
        """Los bloques de columnas, en orden; el último puede ser más estrecho."""
        return _slices(self.vocab, self.chunk_columns)

    def logits(self, chunk: slice, columns: slice) -> Tensor:
        """Los logits (R, C) de un bloque, en fp32."""
        out_RC = None if self._logits is None else self._block(self._logits, chunk, columns)
        return _mm_fp32(self.hidden_NE[chunk], self.weight_VE[columns].T, out_RC)

    def softmaxes(self, chunk: slice, rows: Rows, target_R: Tensor) -> tuple[list[Tensor], Tensor]:
        """El softmax (R, C) de cada bloque de columnas y sus logsumexp (B, R).

        Escribe en `target_R` el logit de cada objetivo. Sin `keep`, solo vale el último softmax.
        """
        softmaxes, lse_BR = [], []
        for columns in self.columns():
            logits_RC = self.logits(chunk, columns)
            rows.target(chunk, columns, logits_RC, target_R)
            highest_R = logits_RC.amax(1)
            softmax_RC = self.softmax(chunk, columns, logits_RC)
            softmaxes.append(softmax_RC)
            # softmax vale 1/Σexp(l − máx) en el máximo, nunca menos de 1/C: de ahí sale el
            # logsumexp sin otra pasada de exponenciales.
            lse_BR.append(highest_R.sub_(softmax_RC.amax(1).log_()))
        return softmaxes, torch.stack(lse_BR)

    def softmax(self, chunk: slice, columns: slice, logits_RC: Tensor) -> Tensor:
        """El softmax (R, C) de los logits de un bloque, en fp32."""
        out_RC = logits_RC
        if self._softmax is not None:
            out_RC = self._block(self._softmax, chunk, columns)
        return torch.softmax(logits_RC, 1, out=out_RC)

    def rounded(self, chunk: slice, columns: slice, softmax_RC: Tensor) -> Tensor:
        """Dónde escribir el gradiente de los logits, en el dtype de `hidden`."""
        if self.hidden_NE.dtype == softmax_RC.dtype:
            return softmax_RC
        if self._rounded is None:
            self._rounded = self._buffer(self.hidden_NE.dtype)
        return self._block(self._rounded, chunk, columns)

    def _buffer(self, dtype: torch.dtype) -> Tensor:
        width = self.vocab if self._keep else self.chunk_columns
        return torch.empty(self.chunk_rows * width, dtype=dtype, device=self.hidden_NE.device)

    def _block(self, buffer: Tensor, chunk: slice, columns: slice) -> Tensor:
        rows, width = chunk.stop - chunk.start, columns.stop - columns.start
        start = self.chunk_rows * columns.start if self._keep else 0
        return buffer[start : start + rows * width].view(rows, width)


class Gradients:
    """Acumula ∂/∂hidden (en su dtype) y ∂/∂weight (en fp32), solo los que hacen falta."""

    def __init__(self, head: Head, needed: tuple[bool, bool], active: bool) -> None:
        self._head = head
        self._hidden = torch.empty_like(head.hidden_NE) if active and needed[0] else None
        self._weight = (
            torch.empty_like(head.weight_VE, dtype=torch.float32) if active and needed[1] else None
        )
        if self._weight is not None and not head.hidden_NE.shape[0]:
            self._weight.zero_()

    def add(
        self, chunk: slice, columns: slice, gradient_RC: Tensor, factor_R: Tensor | None = None
    ) -> None:
        """Suma lo que aporta un bloque, con cada fila multiplicada por su factor."""
        head, factor_R1 = self._head, None if factor_R is None else factor_R[:, None]
        if self._hidden is not None:
            product_RE = _mm_fp32(gradient_RC, head.weight_VE[columns])
            if factor_R1 is not None:
                product_RE.mul_(factor_R1)
            if columns.start:
                self._hidden[chunk].add_(product_RE)
            else:
                self._hidden[chunk].copy_(product_RE)
        if self._weight is not None:
            hidden_RE = head.hidden_NE[chunk]
            if factor_R1 is not None:
                hidden_RE = hidden_RE * factor_R1
            # El primer bloque de filas escribe la tabla: no hay que ponerla antes a cero.
            into = _add_mm_fp32 if chunk.start else _put_mm_fp32
            into(self._weight[columns], gradient_RC.T, hidden_RE)

    def result(self) -> tuple[Tensor | None, Tensor | None]:
        """Los dos gradientes; None donde no se pidió."""
        return self._hidden, self._weight


def _slices(length: int, step: int) -> Iterator[slice]:
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def _has_mixed_mm(tensor: Tensor) -> bool:
    """Si sus productos pueden leer 16 bits y dar fp32 directamente (solo existe en CUDA)."""
    return tensor.is_cuda and tensor.dtype != torch.float32


def _mm_fp32(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Producto con entradas de 32 o 16 bits y resultado fp32, sin redondeo intermedio."""
    if _has_mixed_mm(left):
        return torch.mm(left, right, out_dtype=torch.float32)
    # En CPU los GEMM de 16 bits son mucho más lentos que los de fp32 y redondean la salida.
    return torch.mm(left.float(), right.float(), out=out)


def _put_mm_fp32(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total = left @ right` en fp32, en el sitio."""
    if _has_mixed_mm(left):
        total.copy_(torch.mm(left, right, out_dtype=torch.float32))
    else:
        torch.mm(left.float(), right.float(), out=total)


def _add_mm_fp32(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total += left @ right` en fp32."""
    if _has_mixed_mm(left):
        total += torch.mm(left, right, out_dtype=torch.float32)
    else:
        total.addmm_(left.float(), right.float())
