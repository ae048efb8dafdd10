"""Caché de claves y valores para generar token a token sin recalcular el pasado."""

import torch
from torch import Tensor

from enlace.config.schema import ModelConfig


class KVCache:
    """Claves y valores de todas las capas, reservados de una vez para `capacity` posiciones.

    Guarda las cabezas sin expandir (K = n_kv_head), que es lo que GQA ahorra (arXiv 2305.13245):
    2 · n_layer · B · n_kv_head · capacity · head_dim elementos.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`dtype` es el del cálculo: fp32, o el de autocast si está activo."""
        shape = (config.n_layer, 2, batch, config.n_kv_head, capacity, config.head_dim)
        self._layers = torch.empty(shape, device=device, dtype=dtype)
        self._documents = torch.zeros((batch, capacity), device=device, dtype=torch.int64)
        self.length = 0

    def views(self, tokens: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Para cada capa, dónde van las `tokens` posiciones siguientes y todas hasta ellas.

        La primera vista, (2, B, K, tokens, D), es de claves y valores; las otras dos, las claves y
        los valores (B, K, length + tokens, D). Se piden todas a la vez porque pedirlas por capa
        cuesta más que copiar un token.
        """
        end = self.length + tokens
        new = self._layers[:, :, :, :, self.length : end].unbind()
        seen = self._layers[:, :, :, :, :end].flatten(0, 1).unbind()
        return list(zip(new, seen[::2], seen[1::2], strict=True))

    def extend(self, layer: int, k_BKTD: Tensor, v_BKTD: Tensor) -> tuple[Tensor, Tensor]:
        """Añade T posiciones a una capa y devuelve vistas (B, K, length + T, D) con todas."""
        end = self.length + k_BKTD.shape[2]
        keys, values = self._layers[layer, :, :, :, :end]
        keys[:, :, self.length :], values[:, :, self.length :] = k_BKTD, v_BKTD
        return keys, values

    def extend_documents(self, numbers_BT: Tensor) -> Tensor:
        """Añade los números de documento de T posiciones y devuelve una vista (B, length + T).

        `numbers_BT` cuenta desde 0; aquí siguen al último que ya hay.
        """
        end = self.length + numbers_BT.shape[1]
        last_B1 = self._documents[:, self.length - 1 : self.length] if self.length else 0
        self._documents[:, self.length : end] = numbers_BT + last_B1
        return self._documents[:, :end]

    def advance(self, tokens: int) -> None:
        """Da por escritas `tokens` posiciones, una vez que todas las capas las han añadido."""
        self.length += tokens

    def rewind(self, tokens: int) -> None:
        """Se queda con las primeras `tokens` posiciones."""
        self.length = min(self.length, tokens)
