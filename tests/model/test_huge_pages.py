"""Los pesos del `Decoder`, en una sola zona para la que se piden páginas grandes."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from enlace.model.decoder import Decoder
from enlace.model.huge_pages import in_huge_pages
from enlace.model.transformer import Transformer

from .models import model_config


def test_son_copias_contiguas_e_iguales() -> None:
    tensors = [torch.randn(3, 5), torch.randn(7, 2).t(), torch.randn(4, 4).bfloat16()]
    copies = in_huge_pages(tensors)
    for tensor, copy in zip(tensors, copies, strict=True):
        assert torch.equal(tensor, copy)
        assert copy.is_contiguous()
        assert copy.dtype == tensor.dtype
        assert copy.data_ptr() % 64 == 0
        kept = copy.clone()
        tensor.zero_()
        assert torch.equal(copy, kept)
    assert in_huge_pages([]) == []


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").is_dir(),
    reason="este núcleo no tiene páginas grandes transparentes",
)
def test_el_nucleo_puede_darlas() -> None:
    decoder = Decoder(Transformer(model_config(), "flash").eval())
    zone = _zone(decoder._head_EV)
    # Con memoria compartida la petición no sirve de nada, y no da error.
    assert zone["permissions"] == "rw-p"
    assert "hg" in zone["VmFlags"].split()


def _zone(tensor: Tensor) -> dict[str, str]:
    """Lo que el núcleo dice de la zona de memoria de `tensor`."""
    zone: dict[str, str] = {}
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            start, end = (int(limit, 16) for limit in name.split("-"))
            inside = start <= tensor.data_ptr() < end
            if inside:
                zone["permissions"] = rest[0]
        elif inside:
            zone[name.rstrip(":")] = " ".join(rest)
    return zone
