"""El modelo es, peso por peso, el de transformers: mismos logits y mismos gradientes."""

import pytest
import torch
import transformers
from torch import Tensor, nn

from enlace.config.schema import ModelConfig
from enlace.model.hf_names import hf_name
from enlace.model.transformer import Transformer
from tests.support import make_config


def _hf_twin(model: Transformer) -> nn.Module:
    config = model.config
    values = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.seq_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "sdpa",
    }
    twin: nn.Module
    if config.qk_norm:
        twin = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**values))
    else:
        twin = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values))
    weights = {hf_name(name): tensor for name, tensor in model.state_dict().items()}
    missing, unexpected = twin.load_state_dict(weights, strict=False)
    assert not unexpected
    assert list(missing) == (["lm_head.weight"] if config.tie_embeddings else [])
    return twin


def _perturbed(config: ModelConfig) -> Transformer:
    """Un modelo con todos los pesos al azar, normas incluidas: así ninguno pasa inadvertido."""
    torch.manual_seed(11)
    model = Transformer(config, "flash")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _ids(config: ModelConfig, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(config.vocab_size, (2, length), generator=generator)


@pytest.mark.parametrize("tie_embeddings", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("sdpa_backend", ["flash", "mem_efficient"])
def test_logits_y_gradientes_iguales_a_transformers(
    qk_norm: bool, tie_embeddings: bool, sdpa_backend: str
) -> None:
    config = make_config(
        {
            "model.qk_norm": qk_norm,
            "model.tie_embeddings": tie_embeddings,
            "model.z_loss_weight": 0.0,
            "model.rope_theta": 5000.0,
            "model.norm_eps": 1e-4,
        }
    ).model
    reference = _perturbed(config)
    model = Transformer(config, sdpa_backend)
    model.load_state_dict(reference.state_dict())
    twin = _hf_twin(reference)
    ids = _ids(config, config.seq_len)

    logits, _ = model(ids)
    expected = twin(ids).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)

    targets = ids.roll(-1, dims=1)
    _, loss = model(ids, targets)
    loss.backward()
    expected_loss = nn.functional.cross_entropy(expected.flatten(0, 1), targets.flatten())
    expected_loss.backward()
    torch.testing.assert_close(loss, expected_loss, rtol=1e-6, atol=1e-6)
    theirs = dict(twin.named_parameters())
    ours = dict(model.named_parameters())
    assert len(ours) == len(theirs)
    for name, parameter in ours.items():
        gradient = theirs[hf_name(name)].grad
        assert gradient is not None
        assert gradient.abs().max() > 1e-5, name
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_un_nombre_ajeno_no_tiene_traduccion() -> None:
    for name in ("blocks.0.attn.wz.weight", "blocks.x.attn.wq.weight", "rope_cos"):
        with pytest.raises(KeyError, match="no es un peso"):
            hf_name(name)


def test_los_nombres_no_chocan() -> None:
    for tie_embeddings in (True, False):
        model = Transformer(make_config({"model.tie_embeddings": tie_embeddings}).model, "math")
        names = [hf_name(name) for name in model.state_dict()]
        assert len(set(names)) == len(names)
