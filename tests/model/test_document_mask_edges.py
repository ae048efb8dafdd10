"""La máscara de documentos en los bordes: ventanas raras, de un token, y al generar."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from enlace.config.documents import SEPARATOR_ID, DocumentMask
from enlace.config.schema import Checkpointing
from enlace.model.transformer import Transformer
from tests.model.models import model_config

IGNORED = -100
WINDOWS: dict[str, list[list[int]]] = {
    "todo separadores": [[0] * 8, [0] * 8],
    "ninguno": [[1, 2, 3, 4, 5, 6, 7, 8]],
    "el último": [[1, 2, 3, 4, 5, 6, 7, 0]],
    "el primero": [[0, 2, 3, 4, 5, 6, 7, 8]],
    "un token": [[5]],
    "un separador": [[0]],
}


def _model(
    mask: DocumentMask = "block", checkpointing: Checkpointing = "none", **changes: Any
) -> Transformer:
    torch.manual_seed(3)
    return Transformer(model_config(**changes), "flash", 64, checkpointing, mask)


def _alone(ids: list[int]) -> Tensor:
    """Los vectores de cada documento de la ventana, calculado sin los demás."""
    starts = [0, *(t for t in range(1, len(ids)) if ids[t] == SEPARATOR_ID), len(ids)]
    pieces = [torch.tensor([ids[a:b]]) for a, b in pairwise(starts)]
    model = _model("none")
    return torch.cat([model.hidden_states(piece)[0] for piece in pieces])


@pytest.mark.parametrize("checkpointing", ["none", "mlp", "block"])
@pytest.mark.parametrize("name", WINDOWS)
def test_la_ventana_da_lo_de_cada_documento_y_gradientes_finitos(
    name: str, checkpointing: Checkpointing
) -> None:
    model, ids = _model("block", checkpointing), torch.tensor(WINDOWS[name])
    for row, found in zip(WINDOWS[name], model.hidden_states(ids), strict=True):
        torch.testing.assert_close(found, _alone(row), rtol=1e-5, atol=1e-5)
    targets = ids.roll(-1, 1)
    targets[:, ::3] = IGNORED
    model.loss_sums(ids, targets).objective.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize("name", WINDOWS)
def test_evaluar_y_seguir_con_cache_dan_los_mismos_logits(name: str) -> None:
    model, ids = _model("block", init_std=0.5).eval(), torch.tensor(WINDOWS[name])
    expected = model(ids)[0]
    assert expected is not None
    for split in range(1, ids.shape[1] + 1):
        cache = model.new_cache(len(ids), 16)
        first = model.next_logits(ids[:, :split], cache)
        torch.testing.assert_close(first, expected[:, split - 1], rtol=1e-4, atol=1e-4)
        for position in range(split, ids.shape[1]):
            found = model.next_logits(ids[:, position : position + 1], cache)
            torch.testing.assert_close(found, expected[:, position], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_volver_atras_en_la_cache_olvida_tambien_los_documentos() -> None:
    model = _model("block", init_std=0.5).eval()
    ids, other = torch.tensor([[1, 2, 0, 4, 5]]), torch.tensor([[1, 2, 7, 4, 5]])
    cache = model.new_cache(1, 16)
    model.next_logits(ids, cache)
    cache.rewind(2)
    expected = model(other)[0]
    assert expected is not None
    for position in range(2, 5):
        found = model.next_logits(other[:, position : position + 1], cache)
        torch.testing.assert_close(found, expected[:, position], rtol=1e-4, atol=1e-4)
