"""Los contrincantes: cada uno monta su modelo y entrena hasta que se acaban los turnos.

Todos reciben los mismos ids. ENLACE, la referencia y los dos de transformers son el mismo modelo
con los mismos pesos iniciales; los demás se le parecen cuanto su biblioteca permite.
"""

from typing import Any

import torch
from torch import Tensor

from tests.benchmarks import training_loop as loop
from tests.benchmarks.training_session import Session
from tests.benchmarks.training_works import LR, Setup


def enlace(setup: Setup, session: Session) -> None:
    """La fábrica y el paso del entrenador, con z-loss."""
    from enlace.backends import open_device
    from enlace.train.trainer import build_training, train_step

    config = setup.config()
    assert config.model.z_loss_weight > 0
    session.mark_base()
    training = build_training(config, open_device(config.hardware, config.model))
    loop.initialize(training.model, config.model.init_std)
    session.ready(loop.count_parameters(training.model))
    for step, batch in enumerate(setup.batches()):
        session.step(train_step(training, batch, step).loss)


def reference(setup: Setup, session: Session) -> None:
    """El mismo modelo en PyTorch corriente, con los logits enteros."""
    from tests.benchmarks.training_reference import Reference

    config = setup.config().model
    session.mark_base()
    model = Reference(config)
    loop.initialize(model, config.init_std)
    model.to(setup.device)
    loop.train(model, loop.full_logits(model), setup, session)


def transformers_loop(setup: Setup, session: Session) -> None:
    """`Qwen3ForCausalLM` con el bucle corriente."""
    model = _qwen3(setup, session)

    def loss_of(ids_BT: Tensor, targets_BT: Tensor) -> Tensor:
        # Con `shift_labels` usa los objetivos tal cual, sin perder el último de cada secuencia.
        output = model(input_ids=ids_BT, labels=targets_BT, shift_labels=targets_BT)
        loss: Tensor = output.loss
        return loss

    loop.train(model, loss_of, setup, session)


def transformers_trainer(setup: Setup, session: Session) -> None:
    """`Qwen3ForCausalLM` con Trainer, que manda: el turno acaba dentro de su propio bucle."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    config = setup.config()
    last: list[Tensor] = []

    class Observed(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            last[:] = [super().training_step(*args, **kwargs)]
            return last[0]

    class Turns(TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            session.ready(loop.count_parameters(model))

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            session.step(last[0])

    class Batches(torch.utils.data.IterableDataset[dict[str, Tensor]]):
        def __iter__(self) -> Any:
            for batch in setup.batches():
                for ids_T, targets_T in zip(batch.ids, batch.targets, strict=True):
                    yield {"input_ids": ids_T, "labels": targets_T, "shift_labels": targets_T}

    model = _qwen3(setup, session)
    arguments = TrainingArguments(
        output_dir=setup.folder,
        per_device_train_batch_size=setup.work.batch,
        max_steps=config.train.steps,
        learning_rate=LR,
        lr_scheduler_type="constant",
        weight_decay=config.train.weight_decay,
        adam_beta1=config.train.beta1,
        adam_beta2=config.train.beta2,
        adam_epsilon=config.train.eps,
        max_grad_norm=config.train.grad_clip,
        optim="adamw_torch_fused",
        bf16=config.hardware.dtype == "bf16",
        fp16=config.hardware.dtype == "fp16",
        use_cpu=setup.device == "cpu",
        dataloader_pin_memory=setup.device != "cpu",
        remove_unused_columns=False,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Observed(model=model, args=arguments, train_dataset=Batches(), callbacks=[Turns()]).train()


def litgpt(setup: Setup, session: Session) -> None:
    """El GPT de litgpt con la forma de Qwen3 y la pérdida de su `pretrain`."""
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    config = setup.config().model
    session.mark_base()
    model = GPT(
        Config(
            block_size=config.seq_len,
            vocab_size=config.vocab_size,
            padded_vocab_size=config.vocab_size,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_query_groups=config.n_kv_head,
            head_size=config.head_dim,
            n_embd=config.d_model,
            intermediate_size=config.ffn_dim,
            rotary_percentage=1.0,
            rope_base=int(config.rope_theta),
            norm_class_name="RMSNorm",
            norm_eps=config.norm_eps,
            norm_qk=config.qk_norm,
            mlp_class_name="LLaMAMLP",
            parallel_residual=False,
            bias=False,
        )
    )
    model.transformer.wte.weight = model.lm_head.weight
    loop.initialize(model, config.init_std)
    model.to(setup.device)
    loop.train(
        model, lambda ids, targets: chunked_cross_entropy(model(ids), targets), setup, session
    )


def x_transformers(setup: Setup, session: Session) -> None:
    """Un decodificador de x-transformers con RMSNorm, RoPE, GQA y SwiGLU, sin QK-norm."""
    from x_transformers import Decoder, TransformerWrapper

    config = setup.config().model
    session.mark_base()
    model = TransformerWrapper(
        num_tokens=config.vocab_size,
        max_seq_len=config.seq_len,
        use_abs_pos_emb=False,
        tie_embedding=True,
        attn_layers=Decoder(
            dim=config.d_model,
            depth=config.n_layer,
            heads=config.n_head,
            attn_dim_head=config.head_dim,
            attn_kv_heads=config.n_kv_head,
            attn_flash=True,
            rotary_pos_emb=True,
            use_rmsnorm=True,
            ff_mult=config.ffn_dim / config.d_model,
            ff_glu=True,
            ff_swish=True,
            ff_no_bias=True,
        ),
    )
    loop.initialize(model, config.init_std)
    model.to(setup.device)
    loop.train(model, loop.full_logits(model), setup, session)


def _qwen3(setup: Setup, session: Session) -> Any:
    from tests.benchmarks.peer_qwen3 import build_qwen3
    from tests.benchmarks.training_reference import Reference

    config = setup.config().model
    session.mark_base()
    model = build_qwen3(config)
    with torch.device("meta"):
        names = loop.hf_names(Reference(config))
    loop.initialize(model, config.init_std, names)
    return model.to(setup.device)
