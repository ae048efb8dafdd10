"""Memoria en páginas grandes: leer cientos de megabytes seguidos con menos fallos de TLB."""

import contextlib
import math
import mmap
import sys
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
    area = _area(max(1, sum(sizes)))
    copies, offset = [], 0
    for tensor, size in zip(tensors, sizes, strict=True):
        flat = torch.frombuffer(area, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
        copies.append(flat.view(tensor.shape).copy_(tensor))
        offset += size
    return copies


def _area(size: int) -> mmap.mmap:
    """Memoria privada: a la compartida, que es la que Python da, Linux le niega las grandes.

    Manda otro ajuste (transparent_hugepage/shmem_enabled), que de fábrica vale never.
    """
    if sys.platform != "linux":
        return mmap.mmap(-1, size)
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return area


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNMENT) * _ALIGNMENT
