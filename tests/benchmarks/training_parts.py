"""Lo que se mide aparte del paso: la máquina, la pérdida y la lectura de los datos.

Son contrincantes como los demás: montan lo suyo y llaman a `session.step` en cada vuelta.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tests.benchmarks.training_loop import DTYPES
from tests.benchmarks.training_session import Session
from tests.benchmarks.training_works import Setup

_SQUARE = (1024, 2048)
_REPEATS = 3
SHARD_TOKENS = 1 << 25


def machine(setup: Setup, session: Session) -> None:
    """El mejor producto de matrices: cuadradas y con las formas del modelo, en cada vuelta.

    La salida se escribe en un tampón ya usado; cada forma se repite y cuenta la mejor vez.
    """
    from tests.benchmarks.training_reference import step_flops

    config = setup.config()
    model, rows = config.model, min(config.hardware.loss_chunk_rows, setup.work.tokens)
    shapes = [(size, size, size) for size in _SQUARE]
    shapes += [
        (setup.work.tokens, model.d_model, model.ffn_dim),
        (setup.work.tokens, model.ffn_dim, model.d_model),
        (rows, model.d_model, model.vocab_size),
        (rows, model.vocab_size, model.d_model),
    ]
    dtype = DTYPES[config.hardware.dtype]
    session.extra["flops"] = step_flops(model, setup.work.batch)
    session.extra["card"] = _card(setup, config.hardware.dtype)
    session.ready(0)
    while True:
        session.extra["gemm"] = {
            f"{n}×{k}×{m}": _gemm(n, k, m, dtype, setup.device) for n, k, m in shapes
        }
        session.step(0.0)


def _card(setup: Setup, dtype: Any) -> dict[str, Any] | None:
    """El máximo de la tarjeta con la fórmula de `enlace.cards`; en CPU no hay."""
    from enlace.backends import describe_device
    from enlace.cards import peak_flops

    if setup.device == "cpu":
        return None
    card = describe_device(setup.device)
    assert card.capability is not None
    peak = peak_flops(card.name, card.capability, card.sm_count, card.clock_khz * 1e3, dtype)
    return {"name": card.name, "flops": peak, "clock_khz": card.clock_khz, "dtype": dtype}


def _gemm(n: int, k: int, m: int, dtype: torch.dtype, device: str) -> float:
    """FLOP por segundo de (n, k) @ (k, m), la mejor de varias veces."""
    left = torch.randn(n, k, device=device, dtype=dtype)
    right = torch.randn(k, m, device=device, dtype=dtype)
    out = torch.empty(n, m, device=device, dtype=dtype)
    best = 0.0
    for _ in range(1 + _REPEATS):
        started = time.perf_counter()
        torch.mm(left, right, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * n * k * m / (time.perf_counter() - started))
    return best


def loss_enlace(setup: Setup, session: Session) -> None:
    """La pérdida de ENLACE, con z-loss, hacia delante y hacia atrás."""
    from enlace.backends import open_device
    from enlace.model.loss import linear_cross_entropy

    config = setup.config()
    open_device(config.hardware)

    def loss_of(hidden_NE: Tensor, weight_VE: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        sums = linear_cross_entropy(
            hidden_NE,
            weight_VE,
            targets_N,
            z_weight=config.model.z_loss_weight,
            chunk_rows=config.hardware.loss_chunk_rows,
            chunk_columns=config.hardware.loss_chunk_columns,
        )
        return sums.objective / targets_N.numel(), sums.ce / targets_N.numel()

    _loss_stage(setup, session, loss_of)


def loss_plain(setup: Setup, session: Session) -> None:
    """La de siempre: todos los logits y `F.cross_entropy`, sin z-loss."""

    def loss_of(hidden_NE: Tensor, weight_VE: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        loss = F.cross_entropy(hidden_NE @ weight_VE.T, targets_N)
        return loss, loss.detach()

    _loss_stage(setup, session, loss_of)


def _loss_stage(setup: Setup, session: Session, loss_of: Any) -> None:
    """Repite `loss_of` y su vuelta atrás; la memoria se cuenta con las entradas ya hechas."""
    config = setup.config()
    generator = torch.Generator().manual_seed(config.train.seed)

    def matrix(rows: int) -> Tensor:
        values = torch.randn(rows, config.model.d_model, generator=generator)
        return values.to(setup.device)

    dtype = DTYPES[config.hardware.dtype]
    hidden_NE = matrix(setup.work.tokens).to(dtype).requires_grad_()
    weight_VE = (config.model.init_std * matrix(config.model.vocab_size)).requires_grad_()
    targets_N = next(setup.batches()).targets.flatten().to(setup.device)
    session.mark_base()
    session.ready(0)
    while True:
        with torch.autocast(setup.device, dtype, enabled=dtype != torch.float32):
            loss, shown = loss_of(hidden_NE, weight_VE, targets_N)
        loss.backward()
        hidden_NE.grad = weight_VE.grad = None
        session.step(shown.detach())


def stream_enlace(setup: Setup, session: Session) -> None:
    """El flujo del entrenador, con un lote por vuelta."""
    from enlace.backends import open_device
    from enlace.data.streams import open_stream

    config = setup.config()
    open_device(config.hardware)
    stream = open_stream(
        Path(setup.folder), "train", setup.work.seq_len, setup.work.batch, config.train.seed
    )
    session.ready(0)
    step = 0
    while True:
        session.step(stream.batch(step).ids.numel())
        step += 1


def stream_nanogpt(setup: Setup, session: Session) -> None:
    """Ventanas al azar sobre un memmap que se abre en cada lote, a la manera de nanoGPT."""
    path, length = next(Path(setup.folder).glob("train-*.bin")), setup.work.seq_len
    session.ready(0)
    while True:
        tokens = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(len(tokens) - length, (setup.work.batch,))
        rows = [_window(tokens, int(start), length) for start in starts]
        targets = [_window(tokens, int(start) + 1, length) for start in starts]
        ids_BT, _ = torch.stack(rows), torch.stack(targets)
        session.step(ids_BT.numel())


def _window(tokens: Any, start: int, length: int) -> Tensor:
    return torch.from_numpy(tokens[start : start + length].astype(np.int64))


def write_shards(folder: Path, vocab_size: int, tokens: int = SHARD_TOKENS) -> None:
    """Escribe una parte de entrenamiento y otra de validación con ids al azar, en un solo shard."""
    from enlace.data.encode import EncodedBatch
    from enlace.data.index import INDEX_FILE, ShardIndex, TokenizerRecord
    from enlace.data.shards import SplitWriter

    ids = np.random.default_rng(0).integers(0, vocab_size, tokens, np.uint16)
    lengths = np.array([tokens])
    splits = {}
    for split in ("train", "val"):
        writer = SplitWriter(folder, split, tokens, vocab_size)
        writer.write(EncodedBatch(ids, lengths, None, lengths))
        splits[split] = writer.close()
    index = ShardIndex(
        version=1,
        format="text",
        dtype="uint16",
        vocab_size=vocab_size,
        eos_id=0,
        tokenizer=TokenizerRecord(kind="bpe", vocab_size=vocab_size, fingerprint="0" * 64),
        splits=splits,
    )
    (folder / INDEX_FILE).write_text(index.model_dump_json(), encoding="utf-8")
