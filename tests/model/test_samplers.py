"""Los filtros del muestreo, contra los de transformers, y la generación entera contra la suya."""

import itertools
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from enlace.model.hf_names import hf_name
from enlace.model.sampling import Sampling, next_ids, penalize, warp_logits
from enlace.model.transformer import Transformer

from .models import model_config, random_ids


def _logits(ties: bool = True) -> Tensor:
    logits = 3 * torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    if ties:  # también entre los mejores: el k-ésimo está empatado
        logits[:, 10:20] = logits.amax(dim=1, keepdim=True)
        logits[:, 30:40] = logits[:, 30:31]
    return logits


def _theirs(sampling: Sampling) -> transformers.LogitsProcessorList:
    """Los de transformers, en el orden en que su `generate` los pone."""
    steps: list[Any] = [transformers.TemperatureLogitsWarper(sampling.temperature)]
    if sampling.repetition_penalty != 1:
        steps.insert(0, transformers.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.top_k:
        steps.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(transformers.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        steps.append(transformers.MinPLogitsWarper(sampling.min_p))
    return transformers.LogitsProcessorList(steps)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [0, 1, 4, 50, 1000])
def test_temperatura_y_top_k_con_empates(temperature: float, top_k: int) -> None:
    logits, sampling = _logits(), Sampling(temperature, top_k)
    expected = _theirs(sampling)(torch.zeros(6, 1, dtype=torch.int64), logits)
    assert torch.equal(warp_logits(logits, sampling), expected)


@pytest.mark.parametrize("top_p", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("top_k", [0, 4, 50])
def test_top_p(top_p: float, top_k: int) -> None:
    logits, sampling = _logits(ties=False), Sampling(0.7, top_k, top_p)
    expected = _theirs(sampling)(torch.zeros(6, 1, dtype=torch.int64), logits)
    assert torch.equal(warp_logits(logits, sampling), expected)


@pytest.mark.parametrize("min_p", [0.01, 0.2, 0.9, 1.0])
def test_min_p(min_p: float) -> None:
    logits, sampling = _logits(), Sampling(1.3, min_p=min_p)
    expected = _theirs(sampling)(torch.zeros(6, 1, dtype=torch.int64), logits)
    assert torch.equal(warp_logits(logits, sampling), expected)


@pytest.mark.parametrize("penalty", [0.5, 1.1, 2.0])
def test_penalizacion_de_todo_el_contexto_una_vez_por_id(penalty: float) -> None:
    logits, context = _logits(), random_ids(6, 40, vocab=64)
    expected = transformers.RepetitionPenaltyLogitsProcessor(penalty)(context, logits.clone())
    assert torch.equal(penalize(logits, context, penalty), expected)


def test_todos_juntos_en_su_orden() -> None:
    context = random_ids(6, 12, vocab=64)
    kept = set()
    for values in itertools.product((0.5, 1.5), (0, 8), (0.6, 1.0), (0.0, 0.1), (1.0, 1.7)):
        sampling, logits = Sampling(*values), _logits(ties=False)
        expected = _theirs(sampling)(context, logits.clone())
        found = warp_logits(penalize(logits, context, sampling.repetition_penalty), sampling)
        assert torch.equal(found, expected), sampling
        kept.add(int((found > -torch.inf).sum()))
    assert len(kept) > 8  # los filtros cambian lo que queda


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(1.0, 8), Sampling(0.9, 20, 0.8, 0.1)])
def test_el_sorteo_sigue_las_probabilidades_que_quedan(sampling: Sampling, ties: bool) -> None:
    logits = _logits(ties)[:1]
    expected = warp_logits(logits, sampling).softmax(-1)[0]
    generator = torch.Generator().manual_seed(0)
    drawn = next_ids(logits.expand(20000, -1), sampling, generator)
    torch.testing.assert_close(drawn.bincount(minlength=64) / 20000, expected, rtol=0, atol=0.015)


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_el_texto_voraz_es_el_de_transformers(penalty: float) -> None:
    config = model_config()
    torch.manual_seed(3)
    model = Transformer(config, "flash").eval()
    theirs = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.ffn_dim,
            num_hidden_layers=config.n_layer,
            num_attention_heads=config.n_head,
            num_key_value_heads=config.n_kv_head,
            head_dim=config.head_dim,
            max_position_embeddings=config.seq_len,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=True,
        )
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    weights = {hf_name(name): value for name, value in model.state_dict().items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    theirs.load_state_dict(weights)
    ids = random_ids(2, 6)
    expected = theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=20,
        do_sample=False,
        repetition_penalty=penalty,
        eos_token_id=None,
        pad_token_id=0,
    )
    found = model.generate(ids, 20, temperature=0.0, repetition_penalty=penalty)
    assert torch.equal(found, expected)
    if penalty == 1:
        assert not torch.equal(found, model.generate(ids, 20, 0.0, repetition_penalty=1.3))


@pytest.mark.parametrize(
    "values",
    [
        {"top_p": 1.5},
        {"top_p": -0.1},
        {"min_p": float("nan")},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("inf")},
    ],
)
def test_valores_imposibles(values: dict[str, Any]) -> None:
    ((name, value),) = values.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        Sampling(**values)
