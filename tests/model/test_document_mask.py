"""La máscara de documentos: cada uno da lo mismo que solo, con todo lo demás puesto."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from enlace.config.documents import SEPARATOR_ID, DocumentMask
from enlace.config.schema import Checkpointing
from enlace.data.bpe import END_OF_TEXT, SPECIAL_TOKENS
from enlace.data.tokenizer import ByteTokenizer
from enlace.model.documents import block_mask, document_numbers
from enlace.model.layers import Block
from enlace.model.transformer import Transformer
from tests.model.models import model_config, random_ids

IGNORED = -100
BACKENDS = ["math", "flash", "mem_efficient"]
# Con cola y sin ella, documentos vacíos, uno que acaba la ventana y una fila entera de relleno.
STARTS = ((0, 7, 20), (0, 1, 2, 30), (5, 6, 31), tuple(range(32)))


def _model(
    mask: DocumentMask = "block",
    backend: str = "flash",
    checkpointing: Checkpointing = "none",
    **changes: Any,
) -> Transformer:
    torch.manual_seed(3)
    return Transformer(model_config(**changes), backend, 64, checkpointing, mask)


def _windows() -> Tensor:
    """Cuatro ventanas (4, 32) cuyos separadores están exactamente en `STARTS`."""
    ids = random_ids(rows=len(STARTS), length=32, vocab=255) + 1
    for row, starts in enumerate(STARTS):
        ids[row, list(starts)] = SEPARATOR_ID
    return ids


def _pieces(row: Tensor) -> list[Tensor]:
    """Los documentos de una ventana, cada uno desde su separador."""
    starts = [0, *(t for t in range(1, len(row)) if row[t] == SEPARATOR_ID), len(row)]
    return [row[a:b] for a, b in pairwise(starts)]


def _gradients(model: Transformer) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("backend", "n_kv_head"), [*((b, 2) for b in BACKENDS), ("flash", 4)])
def test_la_ventana_da_lo_mismo_que_cada_documento_solo(backend: str, n_kv_head: int) -> None:
    model, alone = (_model(mask, backend, n_kv_head=n_kv_head) for mask in ("block", "none"))
    ids = _windows()
    targets = ids.roll(-1, 1)
    model.loss_sums(ids, targets).objective.backward()
    hidden = model.hidden_states(ids)
    for row, row_targets, row_hidden in zip(ids, targets, hidden, strict=True):
        done = 0
        for piece in _pieces(row):
            end = done + len(piece)
            found = alone.hidden_states(piece[None])[0]
            torch.testing.assert_close(row_hidden[done:end], found, rtol=1e-5, atol=1e-5)
            alone.loss_sums(piece[None], row_targets[None, done:end]).objective.backward()
            done = end
    expected = _gradients(alone)
    for name, gradient in _gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_un_documento_no_se_entera_de_que_cambia_el_anterior(backend: str) -> None:
    ids = random_ids(rows=2, length=32, vocab=255) + 1
    ids[:, 15] = SEPARATOR_ID
    other = ids.clone()
    other[:, :15] = random_ids(rows=2, length=15, vocab=255, seed=9) + 1
    masked, plain = _model("block", backend), _model("none", backend)
    assert torch.equal(masked(ids)[0][:, 15:], masked(other)[0][:, 15:])
    assert not torch.equal(plain(ids)[0][:, 15:], plain(other)[0][:, 15:])
    # Y hacia atrás: la pérdida del segundo no mueve los embeddings que solo están en el primero.
    targets = ids.roll(-1, 1)
    targets[:, :15] = IGNORED
    only_first = sorted(set(ids[:, :15].flatten().tolist()) - set(ids[:, 15:].flatten().tolist()))
    untied = _model("block", backend, tie_embeddings=False)
    untied.loss_sums(ids, targets).objective.backward()
    assert untied.tok_emb.weight.grad is not None
    assert only_first
    assert not untied.tok_emb.weight.grad[only_first].any()


@pytest.mark.parametrize("dtype", [None, torch.float16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_ni_el_relleno_ni_lo_ignorado_dan_nan(backend: str, dtype: torch.dtype | None) -> None:
    model, ids = _model("block", backend), torch.full((2, 32), SEPARATOR_ID)
    targets = torch.full_like(ids, IGNORED)
    targets[0, :3] = 5
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        sums = model.loss_sums(ids, targets)
        hidden = model.hidden_states(ids)
    sums.objective.backward()
    assert torch.isfinite(hidden).all()
    assert torch.isfinite(sums.objective)
    assert all(torch.isfinite(gradient).all() for gradient in _gradients(model).values())


def test_sin_separadores_es_la_atencion_causal() -> None:
    ids = random_ids(rows=2, length=32, vocab=255) + 1
    torch.testing.assert_close(_model("block")(ids)[0], _model("none")(ids)[0])


def test_la_mascara_deja_ver_lo_que_dice_la_regla() -> None:
    numbers = document_numbers(_windows())
    mask = block_mask(numbers, numbers, torch.float32)[:, 0]
    for row, starts in enumerate(STARTS):
        for query in range(32):
            opened = max((start for start in starts if start <= query), default=0)
            expected = [0.0 if opened <= key <= query else -torch.inf for key in range(32)]
            assert mask[row, query].tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_se_hace_una_vez_del_dtype_de_las_consultas_y_sirve_a_todas_las_capas(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []
    attention = F.scaled_dot_product_attention

    def spy(query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        assert kwargs["attn_mask"].dtype == query.dtype == dtype
        assert not kwargs["is_causal"]
        seen.append(kwargs["attn_mask"])
        return attention(query, *args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    model = _model("block", n_layer=3)
    with torch.autocast("cpu", dtype=torch.float16, enabled=dtype == torch.float16):
        model(_windows())
    assert len(seen) == 3
    assert len({mask.data_ptr() for mask in seen}) == 1
    assert seen[0].shape == (4, 1, 32, 32)


def test_en_cpu_flash_admite_la_mascara_sin_recurrir_a_math() -> None:
    ids = _windows()
    expected = _model("block", "math")(ids)[0]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        torch.testing.assert_close(_model("block", "flash")(ids)[0], expected)


@pytest.mark.parametrize(
    ("checkpointing", "dropout", "dtype"),
    [("mlp", 0.0, None), ("mlp", 0.3, torch.float16), ("block", 0.3, None)],
)
def test_recalcular_da_los_mismos_gradientes_bit_a_bit(
    checkpointing: Checkpointing, dropout: float, dtype: torch.dtype | None
) -> None:
    outcomes = []
    for mode in ("none", checkpointing):
        model = _model("block", checkpointing=mode, dropout=dropout)
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            sums = model.loss_sums(_windows(), _windows().roll(-1, 1))
        sums.objective.backward()
        outcomes.append((sums.objective.detach(), _gradients(model)))
    (loss, gradients), (found_loss, found) = outcomes
    assert torch.equal(found_loss, loss)
    assert all(torch.equal(found[name], gradient) for name, gradient in gradients.items())


@torch.no_grad()
def test_generar_con_cache_respeta_los_documentos() -> None:
    """Con separadores en el principio y al pasar de un texto al siguiente, sin parar en él."""
    model = _model("block", init_std=0.5).eval()
    ids = random_ids(rows=2, length=6, vocab=255) + 1
    ids[0, 3] = SEPARATOR_ID
    cache = model.new_cache(2, 32)
    pending, everything = ids, ids
    for step in range(12):
        logits = model.next_logits(pending, cache)
        expected = model(everything)[0][:, -1]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        pending = torch.full((2, 1), SEPARATOR_ID) if step == 4 else logits.argmax(-1)[:, None]
        everything = torch.cat([everything, pending], dim=1)


def test_el_separador_es_el_de_los_dos_tokenizadores() -> None:
    assert ByteTokenizer.eos_id == SPECIAL_TOKENS.index(END_OF_TEXT) == SEPARATOR_ID


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Que lo compilado en otra prueba no decida qué dimensiones son símbolos en esta."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
def test_compilar_no_cambia_nada_y_sirve_para_cualquier_reparto_en_documentos() -> None:
    plain, compiled = _model("block"), _model("block")
    graphs: list[torch.fx.GraphModule] = []

    def counted(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph

    for block in compiled.blocks:
        assert isinstance(block, Block)
        block.compile(backend=counted, fullgraph=True)
    for ids in (_windows(), random_ids(rows=4, length=32), _windows().flip(0)):
        for model in (plain, compiled):
            model.loss_sums(ids, ids.roll(-1, 1)).objective.backward()
    assert len(graphs) == 1
    expected = _gradients(plain)
    for name, gradient in _gradients(compiled).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-5, atol=1e-5, msg=name)
