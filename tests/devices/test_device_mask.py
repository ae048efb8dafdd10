"""La máscara de documentos frente a la tarjeta: el remedio admite máscara, y a torch se le dice."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from enlace.backends import confirm_sdpa, decide, open_device
from enlace.cards import CARDS, GIB, Card
from enlace.config.documents import DocumentMask, kernel_for_mask
from enlace.config.schema import HardwareConfig
from enlace.devices.attention import sdpa_refusals
from enlace.devices.description import DeviceDescription
from enlace.errors import HardwareError
from tests.support import make_config

KERNELS = ("flash", "mem_efficient", "cudnn", "math")


def hardware(kernel: str, dtype: str = "fp16") -> HardwareConfig:
    changes = {"hardware.device": "cuda", "hardware.sdpa_backend": kernel, "hardware.dtype": dtype}
    return make_config(changes).hardware


def described(card: Card) -> DeviceDescription:
    return DeviceDescription("cuda", card.name, card.capability, int(card.memory_gib * GIB))


def the(name: str) -> DeviceDescription:
    return described(next(card for card in CARDS if name in card.name))


@pytest.mark.parametrize("capability", sorted({card.capability for card in CARDS}))
def test_en_ninguna_tarjeta_queda_un_nucleo_que_no_admita_la_mascara(
    capability: tuple[int, int],
) -> None:
    card = next(card for card in CARDS if card.capability == capability)
    for dtype in ("fp32", "fp16", "bf16"):
        plain, masked = (
            sdpa_refusals(described(card), hardware("math", dtype), None, mask)
            for mask in ("none", "block")
        )
        assert plain.keys() <= masked.keys()
        for kernel in set(KERNELS) - masked.keys():
            assert kernel_for_mask("cuda", kernel) is None
        # La máscara no quita el único que vale: lo que rechaza lo rechaza por ella o ya estaba.
        assert ("mem_efficient" in masked) == ("mem_efficient" in plain)


def test_el_remedio_nunca_es_un_nucleo_sin_mascara() -> None:
    card = the("4090")
    remedies: dict[DocumentMask, str] = {"none": "flash", "block": "mem_efficient"}
    for mask, kernel in remedies.items():
        with pytest.raises(HardwareError, match=f"pon hardware.sdpa_backend: {kernel}"):
            decide(hardware("math"), card, 1, None, mask)
    with pytest.raises(HardwareError, match=r"flash.*no sirve con data\.document_mask = block"):
        decide(hardware("flash"), card, 1, None, "block")


@pytest.mark.parametrize("mask", ["none", "block"])
def test_a_torch_se_le_pregunta_con_la_mascara_o_sin_ella(mask: DocumentMask) -> None:
    asked: list[tuple[bool, bool]] = []

    def choose(*inputs: Any, **options: Any) -> int:
        given = options["attn_mask"]
        if given is not None:
            assert isinstance(given, Tensor)
            assert (given.dtype, given.shape) == (inputs[0].dtype, (1, 1, 16, 16))
        asked.append((given is not None, options["is_causal"]))
        return 2

    backend = decide(hardware("mem_efficient"), the("2060"), 1, None, mask)
    confirm_sdpa(replace(backend, device=torch.device("cpu")), None, mask, choose)
    assert asked == [(mask == "block", mask == "none")]


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_la_cpu_confirma_lo_que_dice_la_tabla(kernel: str) -> None:
    config = make_config({"hardware.sdpa_backend": kernel, "data.document_mask": "block"})
    assert kernel_for_mask("cpu", kernel) is None
    confirm_sdpa(open_device(config.hardware), config.model, "block")
