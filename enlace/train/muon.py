"""Muon: cada matriz se mueve según su momento ortogonalizado; lo demás, con AdamW.

El momento M = U·S·Vᵀ de una matriz se cambia por algo cercano a U·Vᵀ, que da el mismo peso a todas
las direcciones (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/). No se calcula la
descomposición: se itera un polinomio impar de Newton–Schulz. La actualización se multiplica por
0,2·√máx(salida, entrada), con lo que su RMS es la que suele tener AdamW, y la tasa y el
decaimiento elegidos para AdamW sirven (Liu et al. 2025, arXiv 2502.16982, §2.2).

Muon y AdamW son aquí un solo optimizador. `GradScaler` decide por optimizador si un gradiente
desbordó: con dos, un infinito en una matriz saltaría las matrices y movería lo demás.

Letras de forma: B matrices apiladas, M filas, N columnas, con M ≤ N al iterar.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""a, b y c de aX + b(XXᵀ)X + c(XXᵀ)²X (Jordan et al. 2024). La pendiente a en el origen es casi la
mayor posible, y por eso no converge a 1: deja los valores singulares entre 0,7 y 1,2, o así."""
RMS_MATCH = 0.2
"""La RMS de la actualización de AdamW que se imita (arXiv 2502.16982, §2.2)."""
STACK_ELEMENTS = 1 << 22
"""Elementos que se iteran a la vez: apilar matrices pequeñas ahorra lanzamientos, y con más no se
gana velocidad y sí se gasta memoria."""


class MuonAdamW(torch.optim.Optimizer):
    """Los grupos con `rule: muon` se mueven con Muon y los de `rule: adamw` con AdamW fundido.

    El estado de una matriz de Muon es su `momentum` en fp32; el de lo demás, el de AdamW.

    Args:
        groups: grupos de parámetros con `rule`, `weight_decay` y `lr_scale`; los de Muon solo
            tienen matrices.
        lr: tasa inicial de todos.
        momentum: memoria de la media de los gradientes, con el adelanto de Nesterov.
        ns_steps: iteraciones de Newton–Schulz.
        ns_dtype: precisión de sus productos.
        adamw: argumentos de `torch.optim.AdamW` para lo demás.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        ns_steps: int,
        ns_dtype: torch.dtype,
        adamw: dict[str, Any],
    ) -> None:
        super().__init__(groups, {"lr": lr})
        self._momentum, self._ns_steps, self._ns_dtype = momentum, ns_steps, ns_dtype
        # Los mismos diccionarios: la tasa que se pone en `param_groups` llega a los dos.
        rest = [group for group in self.param_groups if group["rule"] == "adamw"]
        self._adamw = torch.optim.AdamW(rest, lr=lr, **adamw)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Actualiza todos los parámetros que tienen gradiente."""
        assert closure is None
        self._adamw.state = self.state
        self._adamw.step()
        for group in self.param_groups:
            if group["rule"] == "muon":
                self._step_matrices(group)

    def _step_matrices(self, group: dict[str, Any]) -> None:
        for matrices in _stacks([p for p in group["params"] if p.grad is not None]):
            moved = torch.stack([_wide(self._nesterov(matrix)) for matrix in matrices])
            directions = orthogonalize(moved, self._ns_steps, self._ns_dtype)
            for matrix, direction in zip(matrices, directions, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                scale = RMS_MATCH * max(matrix.shape) ** 0.5
                is_tall = matrix.shape[0] > matrix.shape[1]
                direction = direction.mT if is_tall else direction
                matrix.add_(direction, alpha=-group["lr"] * scale)

    def _nesterov(self, matrix: Tensor) -> Tensor:
        """Lleva la media de los gradientes y devuelve la adelantada; la misma que torch."""
        gradient, state = matrix.grad, self.state[matrix]
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        state["momentum"].lerp_(gradient, 1 - self._momentum)
        return gradient.lerp(state["momentum"], self._momentum)


def orthogonalize(x_BMN: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Aproxima U·Vᵀ de cada matriz U·S·Vᵀ con `steps` iteraciones de Newton–Schulz.

    Una matriz nula da cero. El tamaño no importa: se divide entre el mayor elemento y después entre
    la norma de Frobenius, así que ni 1e30 desborda al elevarlo al cuadrado ni 1e-30 se anula. Se
    hace en fp32 y *antes* de pasar a `dtype`: los gradientes sin normalizar no caben en 16 bits.

    Args:
        x_BMN: las matrices, en fp32 o fp64; la iteración cuesta menos con M ≤ N.
        steps: iteraciones.
        dtype: precisión de los productos.

    Returns:
        (B, M, N) en `dtype`.
    """
    largest = torch.linalg.vector_norm(x_BMN, torch.inf, dim=(-2, -1), keepdim=True)
    x_BMN = x_BMN / largest.clamp_min(torch.finfo(x_BMN.dtype).tiny)
    norm = torch.linalg.vector_norm(x_BMN, dim=(-2, -1), keepdim=True)
    x_BMN = x_BMN.div_(norm.clamp_min(1.0)).to(dtype)
    a, b, c = QUINTIC
    for _ in range(steps):
        gram_BMM = torch.bmm(x_BMN, x_BMN.mT)
        factor_BMM = torch.baddbmm(gram_BMM, gram_BMM, gram_BMM, beta=b, alpha=c)
        x_BMN = torch.baddbmm(x_BMN, factor_BMM, x_BMN, beta=a)
    return x_BMN


def _wide(matrix: Tensor) -> Tensor:
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix


def _stacks(matrices: list[Tensor]) -> Iterator[list[Tensor]]:
    """Junta las matrices de igual forma, a lo ancho, en pilas de `STACK_ELEMENTS` o de una sola."""
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for matrix in matrices:
        by_shape.setdefault(_wide(matrix).shape, []).append(matrix)
    for shape, alike in by_shape.items():
        count = max(1, STACK_ELEMENTS // shape.numel())
        for start in range(0, len(alike), count):
            yield alike[start : start + count]
