"""La máscara de documentos: qué se elige, con qué id se separan y qué núcleos la admiten."""

from typing import Literal

DocumentMask = Literal["none", "block"]
"""Si la atención cruza de un documento a otro dentro de una ventana (`none`) o no (`block`)."""

SEPARATOR_ID = 0
"""El id que separa documentos, con bytes y con BPE: `<|endoftext|>`, o NUL en los bytes."""

_MASKED_KERNELS = {"cpu": ("flash", "math"), "cuda": ("mem_efficient",)}
"""Los núcleos que admiten una máscara además de la causal, en torch 2.13.

FlashAttention-2 no admite ninguna en CUDA (la de CPU es otra y sí). La pasada hacia atrás de cuDNN
con máscara da NaN con seq_len ≡ 64 (mód. 128) desde torch 2.11 (pytorch#196678). `math` guarda
matrices T×T por capa, y en CUDA no se usa.
"""


def takes_mask(device: str, sdpa_backend: str) -> bool:
    """Si ese núcleo admite en `device` una máscara además de la causal."""
    return sdpa_backend in _MASKED_KERNELS[device]


def kernel_for_mask(device: str, sdpa_backend: str) -> str | None:
    """El núcleo que hay que poner para enmascarar documentos; None si `sdpa_backend` ya sirve."""
    return None if takes_mask(device, sdpa_backend) else _MASKED_KERNELS[device][0]
