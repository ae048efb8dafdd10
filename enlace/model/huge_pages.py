"""Memoria en páginas grandes: leer cientos de megabytes seguidos con menos fallos de TLB."""

import contextlib
import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

_ALIGNMENT = 64


def in_huge_pages(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copias contiguas en CPU, seguidas en una sola zona para la que se piden páginas grandes.

    Si el núcleo no las da, la copia es la misma en páginas corrientes. Lo que no está en CPU solo
    se hace contiguo.
    """
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return [tensor.contiguous() for tensor in tensors]
    sizes = [_aligned(tensor.numel() * tensor.element_size()) for tensor in tensors]
    # La zona vive mientras viva alguno de sus tensores: `frombuffer` la retiene.
    area = mmap.mmap(-1, max(1, sum(sizes)))
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    copies, offset = [], 0
    for tensor, size in zip(tensors, sizes, strict=True):
        flat = torch.frombuffer(area, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
        copies.append(flat.view(tensor.shape).copy_(tensor))
        offset += size
    return copies


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNMENT) * _ALIGNMENT
