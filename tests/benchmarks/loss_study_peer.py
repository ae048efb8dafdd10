"""El rival del estudio: `Qwen3ForCausalLM` en el Trainer de transformers, con lo suyo de fábrica.

De la receta solo se cambian la tasa y, en la variante con calentamiento, sus pasos. Lo demás es lo
que trae `TrainingArguments`: AdamW sin decaimiento de pesos y tasa que baja en línea recta a cero.
También los pesos iniciales son los suyos.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from enlace.config.schema import Config
from enlace.data.streams import Batch, ShardStream
from enlace.model.loss import IGNORED
from tests.benchmarks.loss_study_plan import RECIPES, Job
from tests.benchmarks.loss_study_run import Meter
from tests.benchmarks.peer_qwen3 import build_qwen3


class Windows(torch.utils.data.IterableDataset[dict[str, Tensor]]):
    """Las secuencias de los lotes de ENLACE, una a una y en su orden."""

    def __init__(self, stream: ShardStream, steps: int) -> None:
        self._stream, self._steps = stream, steps

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for step in range(self._steps):
            for ids_T, targets_T in zip(*self._stream.batch(step), strict=True):
                # Con `shift_labels` usa los objetivos tal cual, sin perder el último.
                yield {"input_ids": ids_T, "labels": targets_T, "shift_labels": targets_T}


def train_qwen3(job: Job, config: Config, stream: ShardStream, meter: Meter) -> Any:
    """Entrena con el Trainer y devuelve el modelo."""
    from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

    class Observed(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            loss: Tensor = super().training_step(*args, **kwargs)
            meter.losses.append(loss.item())
            return loss

    class Clock(TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            # El Trainer envuelve el optimizador de torch; los avisos son del de dentro.
            meter.watch(kwargs["optimizer"].optimizer)

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            meter.begin_step()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            meter.end_step()

    set_seed(job.seed)
    model = build_qwen3(config.model)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            seed=job.seed,
            per_device_train_batch_size=config.sequences_per_step,
            max_steps=job.steps,
            learning_rate=job.lr,
            use_cpu=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **RECIPES[job.recipe],
        )
        windows = Windows(stream, job.steps)
        Observed(model=model, args=arguments, train_dataset=windows, callbacks=[Clock()]).train()
    return model


def validate_qwen3(model: Any, batches: Iterator[Batch]) -> tuple[float, int]:
    """Pérdida media por token, sobre los mismos objetivos que ENLACE, y cuántos son."""
    nats, tokens = 0.0, 0
    model.eval()
    with torch.no_grad():
        for ids_BT, targets_BT in batches:
            logits_BTV = model(input_ids=ids_BT).logits.float()
            flat = logits_BTV.flatten(0, 1), targets_BT.flatten()
            nats += F.cross_entropy(*flat, ignore_index=IGNORED, reduction="sum").item()
            tokens += int((targets_BT != IGNORED).sum())
    return nats / tokens, tokens
